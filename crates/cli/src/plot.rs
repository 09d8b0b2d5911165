//! Small SVG figures of `simulate` and `probe`: distributions, scatter plots, timelines. The same data give the same text.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

const SIZE: (u32, u32) = (960, 480);

/// Colours that stay apart for most kinds of colour blindness (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(80, 80, 80),
];

const HEADING: (&str, i32) = ("sans-serif", 20);
const LABEL: (&str, i32) = ("sans-serif", 13);

/// Most corners of a distribution's line.
const CDF_POINTS: usize = 1000;

/// What stands at the top and beside the axes; units belong into the axes' names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Titles<'a> {
    pub(crate) heading: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
}

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero, or the least value if that is negative.
    Linear,
    /// Powers of ten; values that are not positive are left out.
    Log,
}

/// Named values of a distribution.
#[derive(Debug, Clone)]
pub(crate) struct Values {
    pub(crate) name: String,
    pub(crate) values: Vec<f64>,
}

/// Named points.
#[derive(Debug, Clone)]
pub(crate) struct Points {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// What happened over time, in one row per lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) heading: String,
    /// Names of the kinds of blocks, for the legend; their order gives the colours.
    pub(crate) kinds: Vec<String>,
    /// From top to bottom.
    pub(crate) lanes: Vec<Lane>,
    /// Instants that concern all lanes, and what happened: vertical lines.
    pub(crate) marks: Vec<(f64, String)>,
}

/// One row of a timeline.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
    /// Dashed horizontal line at this part of the lane's height, e.g. a bound on the blocks' heights.
    pub(crate) bound: Option<f64>,
    /// Stretches of time worth pointing out, e.g. the longest gap: a line at the lane's foot with a text.
    pub(crate) spans: Vec<Span>,
}

/// A filled rectangle; times in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) start_s: f64,
    /// Equal to the start for an event: it is drawn as a thin line.
    pub(crate) end_s: f64,
    /// Index into the timeline's kinds.
    pub(crate) kind: usize,
    /// Part of the lane's height, from 0 to 1.
    pub(crate) height: f64,
}

/// A stretch of a lane with a text; times in seconds.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) start_s: f64,
    pub(crate) end_s: f64,
    pub(crate) text: String,
}

/// Cumulative distributions: for each value, the part of the values (y, 0 to 1) that are at most as large.
pub(crate) fn cdf(titles: Titles<'_>, x: Scale, series: &[Values]) -> Result<String> {
    let lines: Vec<Points> = series.iter().map(distribution).collect();
    let xs = lines
        .iter()
        .flat_map(|line| &line.points)
        .map(|point| point.0);
    let axis = Axis::over(xs, x);
    draw(|root| {
        let y = Axis {
            low: 0.0,
            high: 1.0,
            ticks: Ticks::Round,
        };
        let mut chart = chart(root, titles.heading, 50)?.build_cartesian_2d(axis, y)?;
        mesh(&mut chart, titles)?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let shown = line
                .points
                .iter()
                .copied()
                .filter(|point| axis.shows(point.0));
            chart
                .draw_series(LineSeries::new(shown, colour.stroke_width(2)))?
                .label(&line.name)
                .legend(swatch(*colour));
        }
        legend(&mut chart, SeriesLabelPosition::LowerRight)
    })
}

/// One dot per point.
pub(crate) fn scatter(titles: Titles<'_>, x: Scale, y: Scale, series: &[Points]) -> Result<String> {
    let all = || {
        series
            .iter()
            .flat_map(|series| series.points.iter().copied())
    };
    let x = Axis::over(all().map(|point| point.0), x);
    let y = Axis::over(all().map(|point| point.1), y);
    draw(|root| {
        let mut chart = chart(root, titles.heading, 60)?.build_cartesian_2d(x, y)?;
        mesh(&mut chart, titles)?;
        for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let shown = series
                .points
                .iter()
                .filter(|point| x.shows(point.0) && y.shows(point.1));
            chart
                .draw_series(shown.map(|&point| Circle::new(point, 2, colour.mix(0.6).filled())))?
                .label(&series.name)
                .legend(swatch(*colour));
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft)
    })
}

/// Blocks in lanes over time in seconds.
pub(crate) fn timeline(timeline: &Timeline) -> Result<String> {
    let blocks = || timeline.lanes.iter().flat_map(|lane| &lane.blocks);
    let start = blocks()
        .map(|block| block.start_s)
        .reduce(f64::min)
        .unwrap_or(0.0);
    let end = blocks()
        .map(|block| block.end_s)
        .reduce(f64::max)
        .unwrap_or(0.0);
    let end = end.max(start + 1e-3);
    let lanes = timeline.lanes.len().max(1);
    let name = |y: &f64| {
        let lane = timeline.lanes.get((-y) as usize);
        lane.map(|lane| lane.name.clone()).unwrap_or_default()
    };
    let widest = timeline
        .lanes
        .iter()
        .map(|lane| lane.name.chars().count())
        .max();
    draw(|root| {
        let margin = 20 + 7 * widest.unwrap_or(0).min(30) as u32;
        let x = Axis {
            low: start,
            high: end,
            ticks: Ticks::Round,
        };
        let y = Axis {
            low: -(lanes as f64),
            // Room for the legend and the marks' texts.
            high: 0.25 * lanes as f64,
            ticks: Ticks::Centres,
        };
        let mut chart = chart(root, &timeline.heading, margin)?.build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc("time, s")
            .y_label_formatter(&name)
            .label_style(LABEL)
            .draw()?;
        for (kind, colour) in timeline.kinds.iter().zip(COLOURS.iter().cycle()) {
            let none = std::iter::empty::<Circle<(f64, f64), i32>>();
            chart.draw_series(none)?.label(kind).legend(swatch(*colour));
        }
        for (index, lane) in timeline.lanes.iter().enumerate() {
            draw_lane(&mut chart, lane, -(index as f64) - 1.0, start..end)?;
        }
        for (at, text) in &timeline.marks {
            let line = [(*at, y.low), (*at, y.high)];
            chart.draw_series([PathElement::new(line, BLACK.mix(0.7))])?;
            chart.draw_series([Text::new(text.clone(), (*at, y.high), LABEL)])?;
        }
        legend(&mut chart, SeriesLabelPosition::UpperRight)
    })
}

type Root<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw_lane(chart: &mut Chart<'_, '_>, lane: &Lane, foot: f64, time: Range<f64>) -> Drawn {
    let thin = (time.end - time.start) / f64::from(SIZE.0);
    chart.draw_series(lane.blocks.iter().map(|block| {
        let width = block.end_s - block.start_s;
        // Blocks that touch stay apart where there is room for it.
        let gap = if width > 4.0 * thin { thin } else { 0.0 };
        let end = block.start_s + (width - gap).max(thin);
        let top = foot + 0.1 + 0.8 * block.height.clamp(0.0, 1.0);
        let colour = COLOURS[block.kind % COLOURS.len()];
        Rectangle::new([(block.start_s, foot + 0.1), (end, top)], colour.filled())
    }))?;
    if let Some(bound) = lane.bound {
        let y = foot + 0.1 + 0.8 * bound.clamp(0.0, 1.0);
        let line = [(time.start, y), (time.end, y)];
        chart.draw_series(DashedLineSeries::new(line, 6, 4, BLACK.stroke_width(1)))?;
    }
    for span in &lane.spans {
        let line = [(span.start_s, foot + 0.06), (span.end_s, foot + 0.06)];
        chart.draw_series([PathElement::new(line, RED.stroke_width(3))])?;
        let text = Text::new(span.text.clone(), (span.start_s, foot + 0.3), LABEL);
        chart.draw_series([text])?;
    }
    let line = [(time.start, foot), (time.end, foot)];
    chart.draw_series([PathElement::new(line, BLACK.mix(0.2))])?;
    Ok(())
}

fn draw(figure: impl FnOnce(&Root<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)
            .and_then(|()| figure(&root))
            .and_then(|()| root.present())
            .map_err(|error| anyhow!("cannot draw: {error}"))?;
    }
    Ok(svg)
}

fn chart<'a, 'b>(
    root: &'a Root<'b>,
    heading: &str,
    left: u32,
) -> Result<ChartBuilder<'a, 'b, SVGBackend<'b>>, DrawingAreaErrorKind<std::io::Error>> {
    let mut builder = ChartBuilder::on(root);
    builder
        .caption(heading, HEADING)
        .margin(12)
        .margin_right(30)
        .x_label_area_size(44)
        .y_label_area_size(left);
    Ok(builder)
}

fn mesh(chart: &mut Chart<'_, '_>, titles: Titles<'_>) -> Drawn {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(titles.x)
        .y_desc(titles.y)
        .label_style(LABEL)
        .draw()
}

fn legend<'a>(chart: &mut Chart<'a, 'a>, position: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font(LABEL)
        .draw()
}

fn swatch(colour: RGBColor) -> impl Fn((i32, i32)) -> Rectangle<(i32, i32)> {
    move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour.filled())
}

/// The corners of a step function from 0 to 1.
fn distribution(series: &Values) -> Points {
    let mut values = series.values.clone();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let stride = count.div_ceil(CDF_POINTS).max(1);
    let mut points = Vec::new();
    let mut below = 0.0;
    for (index, &value) in values.iter().enumerate() {
        if (index + 1) % stride == 0 || index + 1 == count {
            let share = (index + 1) as f64 / count as f64;
            points.extend([(value, below), (value, share)]);
            below = share;
        }
    }
    Points {
        name: series.name.clone(),
        points,
    }
}

#[derive(Debug, Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    ticks: Ticks,
}

/// Where an axis has its labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ticks {
    /// At round numbers.
    Round,
    /// Between whole numbers below zero: the middles of lanes.
    Centres,
    /// At powers of ten, evenly spaced.
    Decades,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, scale: Scale) -> Self {
        let log = scale == Scale::Log;
        let shown = values.filter(|value| value.is_finite() && (!log || *value > 0.0));
        let low = shown.clone().reduce(f64::min).unwrap_or(1.0);
        let high = shown.reduce(f64::max).unwrap_or(1.0);
        if log {
            let low = 10f64.powf(low.log10().floor());
            let high = 10f64.powf(high.log10().ceil()).max(low * 10.0);
            return Self {
                low,
                high,
                ticks: Ticks::Decades,
            };
        }
        let low = low.min(0.0);
        let high = if high > low { high } else { low + 1.0 };
        Self {
            low,
            high,
            ticks: Ticks::Round,
        }
    }

    fn shows(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = if self.ticks == Ticks::Decades {
            (value / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        limit.0 + (part * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self.ticks {
            Ticks::Round => RangedCoordf64::from(self.low..self.high).key_points(hint),
            Ticks::Centres => {
                let count = -self.low.round() as i32;
                (0..count)
                    .map(|index| self.low + f64::from(index) + 0.5)
                    .collect()
            }
            Ticks::Decades => {
                let count = (self.high / self.low).log10().round() as i32;
                (0..=count)
                    .map(|decade| self.low * 10f64.powi(decade))
                    .collect()
            }
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        plain(value)
    }
}

/// Without the digits that binary fractions bring.
fn plain(value: &f64) -> String {
    let text = format!("{value:.6}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" {
        "0".to_owned()
    } else {
        short.to_owned()
    }
}

#[cfg(test)]
mod tests;
