//! `cargo xtask bench-depth`: the time of a generated token by the tokens before it, on the random DeepSeek V4, beside what its
//! index scan and the rows it gathers take as ops alone. Both go into `docs/bench-depth.svg`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench_peers::files::{DEEPSEEK4, ModelFile};
use crate::{andante, peers};

const DEPTHS: [u32; 6] = [1024, 2048, 4096, 8192, 16384, 32768];

/// Ops whose time grows with the depth, by their names in the example, and the file's layers that have them.
const OPS: [(&str, u32); 3] = [
    ("index", 5),
    ("attention to chosen rows", 5),
    ("attention to all rows of 128", 5),
];

/// One depth: milliseconds of a token.
struct Point {
    depth: u32,
    measured_ms: f64,
    /// The ops' part, as they take alone.
    ops_ms: f64,
}

#[expect(clippy::print_stdout, reason = "a command-line tool talks to its user")]
pub(crate) fn run(root: &Path, args: &[String]) -> Result<()> {
    let mut python = None;
    let mut threads = std::thread::available_parallelism().map_or(2, usize::from);
    for pair in args.chunks(2) {
        match pair {
            [name, value] if name == "--threads" => threads = value.parse().context("--threads")?,
            [name, value] if name == "--python" => python = Some(value.into()),
            _ => anyhow::bail!("{} is not known: --threads N, --python PATH", pair[0]),
        }
    }
    let python = match python {
        Some(path) => path,
        None => peers::python(root)?,
    };
    let andante = andante::build(root)?;
    let file = ModelFile::prepare(DEEPSEEK4, root, &andante, &python)?;
    let measured = measure(&andante, &file.path, threads)?;
    let ops = ops(root, threads)?;
    let points: Vec<Point> = measured
        .into_iter()
        .map(|(depth, measured_ms)| Point {
            depth,
            measured_ms,
            ops_ms: ops(depth),
        })
        .collect();
    ensure!(points.len() == DEPTHS.len(), "a depth was not measured");
    println!("{}", table(&points));
    let path = root.join("docs/bench-depth.svg");
    fs::write(&path, svg(&points)).with_context(|| format!("cannot write {}", path.display()))
}

/// Milliseconds of a token at every depth.
fn measure(andante: &Path, model: &Path, threads: usize) -> Result<Vec<(u32, f64)>> {
    let depths = DEPTHS.map(|depth| depth.to_string()).join(",");
    let output = Command::new(andante)
        .args([
            "bench",
            "--json",
            "--no-ceiling",
            "-p",
            "0",
            "-n",
            "16",
            "-r",
            "5",
            "-d",
            &depths,
        ])
        .args(["--threads", &threads.to_string(), "--model"])
        .arg(model)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start andante bench")?;
    ensure!(output.status.success(), "andante bench failed");
    let lines = String::from_utf8(output.stdout)?;
    let point = |line: &str| -> Option<(u32, f64)> {
        let line: Value = serde_json::from_str(line).ok()?;
        let (_, depth) = line["test"].as_str()?.split_once("@ d")?;
        // The fastest run: other programs only add to a time.
        let rates = line["tokens_per_s"].as_array()?.iter();
        let best = rates.filter_map(Value::as_f64).fold(0.0, f64::max);
        Some((depth.parse().ok()?, 1000.0 / best))
    };
    Ok(lines.lines().filter_map(point).collect())
}

/// What all layers' ops take for a token at a depth, in milliseconds, by the example that measures ops.
fn ops(root: &Path, threads: usize) -> Result<impl Fn(u32) -> f64> {
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--release",
            "--locked",
            "--quiet",
            "-p",
            "andante-compute",
        ])
        .args([
            "--example",
            "ops",
            "--",
            &threads.to_string(),
            "best",
            "1 row to",
        ])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start the example")?;
    ensure!(output.status.success(), "the example failed");
    let text = String::from_utf8(output.stdout)?;
    let time = move |op: &str, depth: u32| -> Option<f64> {
        let rest = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{op}, 1 row to {depth} ")))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    for (op, _) in OPS {
        for depth in DEPTHS {
            ensure!(
                time(op, depth).is_some(),
                "the example has no {op} to {depth}"
            );
        }
    }
    Ok(move |depth| {
        let parts = OPS.map(|(op, layers)| f64::from(layers) * time(op, depth).unwrap_or(f64::NAN));
        parts.iter().sum::<f64>() / 1000.0
    })
}

/// The time at the least depth, and what the ops add to it.
fn expected(points: &[Point], point: &Point) -> f64 {
    points[0].measured_ms + point.ops_ms - points[0].ops_ms
}

fn table(points: &[Point]) -> String {
    let mut text = "| tokens before | ms a token | index scan and attention alone, ms | the first time and their growth, ms | ratio |\n\
                    | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for point in points {
        let expected = expected(points, point);
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {expected:.2} | {:.2} |",
            point.depth,
            point.measured_ms,
            point.ops_ms,
            point.measured_ms / expected
        );
    }
    text
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 370.0;

/// Times over depths, both from zero.
fn svg(points: &[Point]) -> String {
    let most = points
        .iter()
        .map(|point| point.measured_ms.max(expected(points, point)));
    let top = (most.fold(0.0, f64::max) / 10.0).ceil() * 10.0;
    let x = |depth: u32| {
        LEFT + f64::from(depth) / f64::from(DEPTHS[DEPTHS.len() - 1]) * (WIDTH - LEFT - 40.0)
    };
    let y = |ms: f64| BOTTOM - ms / top * (BOTTOM - 50.0);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"15\">Milliseconds of a generated token by the tokens before it</text>\n"
    );
    for tick in 0..=5 {
        let ms = top * f64::from(tick) / 5.0;
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ms:.0}</text>",
            WIDTH - 40.0,
            LEFT - 8.0,
            y(ms) + 4.0,
            at = y(ms),
        );
    }
    for depth in &DEPTHS[2..] {
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{depth}</text>",
            x(*depth),
            BOTTOM + 20.0
        );
    }
    let line = |value: &dyn Fn(&Point) -> f64| {
        let corners = points
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.depth), y(value(point))));
        corners.collect::<Vec<_>>().join(" ")
    };
    let grown = line(&|point| expected(points, point));
    let measured = line(&|point| point.measured_ms);
    let _ = writeln!(
        text,
        "<polyline points=\"{grown}\" fill=\"none\" stroke=\"#b5462f\" stroke-dasharray=\"6 4\"/>\n\
         <polyline points=\"{measured}\" fill=\"none\" stroke=\"#2b7a4b\" stroke-width=\"2\"/>"
    );
    for point in points {
        let _ = writeln!(
            text,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\" fill=\"#2b7a4b\"/>",
            x(point.depth),
            y(point.measured_ms)
        );
    }
    legend(&mut text);
    text + "</svg>\n"
}

fn legend(text: &mut String) {
    let entries = [
        ("#2b7a4b", "measured"),
        (
            "#b5462f",
            "the time at 1,024 tokens and what index scan and attention add to it",
        ),
    ];
    for (index, (colour, name)) in (0..).zip(entries) {
        let at = HEIGHT - 22.0 + 14.0 * f64::from(index);
        let _ = writeln!(
            text,
            "<text x=\"{LEFT}\" y=\"{at}\" fill=\"{colour}\">{name}</text>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Point, expected, svg, table};

    fn points() -> Vec<Point> {
        let point = |depth, measured_ms, ops_ms| Point {
            depth,
            measured_ms,
            ops_ms,
        };
        vec![point(1024, 30.0, 2.0), point(32768, 36.0, 7.0)]
    }

    #[test]
    fn growth_is_that_of_the_ops() {
        let points = points();
        assert_eq!(expected(&points, &points[1]), 35.0);
        assert!(table(&points).contains("| 32768 | 36.00 | 7.00 | 35.00 | 1.03 |"));
    }

    #[test]
    fn every_point_lies_in_the_figure() {
        let svg = svg(&points());
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN"));
    }
}
