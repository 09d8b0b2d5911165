//! Figures as text: their shapes by hand-computed positions, their whole by snapshots.

use super::*;

const TITLES: Titles<'static> = Titles {
    heading: "Gaps",
    x: "gap, ms",
    y: "part of all gaps",
};

fn values(name: &str, values: &[f64]) -> Values {
    Values {
        name: name.to_owned(),
        values: values.to_vec(),
    }
}

#[test]
fn a_distribution_climbs_from_nothing_to_all() {
    let line = distribution(&values("a", &[3.0, 1.0, 2.0, 2.0]));
    assert_eq!(
        line.points,
        [
            (1.0, 0.0),
            (1.0, 0.25),
            (2.0, 0.25),
            (2.0, 0.5),
            (2.0, 0.5),
            (2.0, 0.75),
            (3.0, 0.75),
            (3.0, 1.0)
        ]
    );
    let long: Vec<f64> = (0..100_001).map(f64::from).collect();
    let line = distribution(&values("b", &long));
    assert!(line.points.len() <= 2 * (CDF_POINTS + 1));
    assert_eq!(line.points.last(), Some(&(100_000.0, 1.0)));
}

#[test]
fn log_axes_span_whole_decades_and_skip_zero() {
    let axis = Axis::over([0.0, 3.0, 250.0].into_iter(), Scale::Log);
    assert_eq!((axis.low, axis.high), (1.0, 1000.0));
    assert!(!axis.shows(0.0) && axis.shows(3.0));
    assert_eq!(axis.map(&10.0, (0, 300)), 100);
    assert_eq!(axis.map(&1000.0, (0, 300)), 300);
    let axis = Axis::over([5.0, 20.0].into_iter(), Scale::Linear);
    assert_eq!(axis.map(&5.0, (0, 100)), 25);
}

#[test]
fn labels_are_plain_numbers() {
    let shown = [0.001, 0.1 + 0.2, 1000.0, -0.0].map(|value| plain(&value));
    assert_eq!(shown, ["0.001", "0.3", "1000", "0"]);
}

#[test]
fn figures_without_data_are_still_figures() {
    for svg in [
        cdf(TITLES, Scale::Log, &[values("none", &[])]).unwrap(),
        scatter(TITLES, Scale::Log, Scale::Linear, &[]).unwrap(),
        timeline(&Timeline::default()).unwrap(),
    ] {
        assert!(
            svg.starts_with("<svg") && svg.ends_with("</svg>\n"),
            "{svg}"
        );
    }
}

#[test]
fn distribution_snapshot() {
    let series = [
        values("ours", &[10.0, 20.0, 60.0]),
        values("mixed <512>", &[10.0, 230.0]),
    ];
    insta::assert_snapshot!("cdf", cdf(TITLES, Scale::Log, &series).unwrap());
}

#[test]
fn scatter_snapshot() {
    let points = Points {
        name: "ours".to_owned(),
        points: vec![(200.0, 0.1), (4000.0, 1.5), (100_000.0, 28.0)],
    };
    let titles = Titles {
        heading: "TTFT",
        x: "prompt, tokens",
        y: "TTFT, s",
    };
    insta::assert_snapshot!(
        "scatter",
        scatter(titles, Scale::Log, Scale::Log, &[points]).unwrap()
    );
}

#[test]
fn timeline_snapshot() {
    let block = |start_s, end_s, kind, height| Block {
        start_s,
        end_s,
        kind,
        height,
    };
    let figure = Timeline {
        heading: "Steps".to_owned(),
        kinds: vec!["decode".to_owned(), "mixed".to_owned()],
        lanes: vec![
            Lane {
                name: "ours".to_owned(),
                blocks: vec![block(1.0, 1.5, 0, 0.5), block(1.5, 2.0, 1, 1.0)],
                bound: Some(0.75),
                spans: vec![],
            },
            Lane {
                name: "victim".to_owned(),
                blocks: vec![block(1.0, 1.0, 0, 1.0), block(1.9, 1.9, 0, 1.0)],
                bound: None,
                spans: vec![Span {
                    start_s: 1.0,
                    end_s: 1.9,
                    text: "900 ms".to_owned(),
                }],
            },
        ],
        marks: vec![(1.25, "newcomer".to_owned())],
    };
    insta::assert_snapshot!("timeline", timeline(&figure).unwrap());
}
