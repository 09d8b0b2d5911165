//! The ratios as bars, in SVG.

use std::fmt::Write as _;

use super::results::{Results, Row};

const WIDTH: f64 = 900.0;
/// Where bars begin; labels lie to the left.
const LEFT: f64 = 360.0;
const LINE: f64 = 18.0;
const TOP: f64 = 50.0;

/// One bar for each speed: Andante's over the better peer's; a line at 1.
pub(super) fn svg(results: &Results) -> String {
    let bars: Vec<(&Row, f64)> = results
        .rows
        .iter()
        .filter(|row| !row.is_cost)
        .filter_map(|row| Some((row, row.ratio()?)))
        .collect();
    let most = bars.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT - 60.0) / most;
    let height = TOP + LINE * bars.len() as f64 + 10.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Andante's speed over that of the faster of llama.cpp and \
         ik_llama.cpp</text>\n"
    );
    for (index, (row, ratio)) in bars.iter().enumerate() {
        let y = TOP + LINE * index as f64;
        let (middle, length) = (y + 12.0, ratio * scale);
        let colour = if *ratio >= 1.0 { "#2b7a4b" } else { "#b5462f" };
        let threads = match row.threads {
            1 => "1 thread".to_owned(),
            threads => format!("{threads} threads"),
        };
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}, {}, {threads}</text>\n\
             <rect x=\"{LEFT}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\n\
             <text x=\"{:.1}\" y=\"{middle}\">{ratio:.2}</text>",
            LEFT - 8.0,
            row.file,
            row.test,
            LINE - 4.0,
            LEFT + length + 5.0,
        );
    }
    let one = LEFT + scale;
    let _ = writeln!(
        text,
        "<line x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{}\" y2=\"{height}\" stroke=\"black\" stroke-dasharray=\"4 3\"/>",
        TOP - 8.0
    );
    text + "</svg>\n"
}
