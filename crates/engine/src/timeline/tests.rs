//! What was written is what is read, in order, whoever is slow.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use andante_sched::{Prefill, Priority};

use super::*;
use crate::status::{IoRecord, StepRecord};

fn admitted(number: u64) -> Moment {
    Moment::Admitted {
        at_us: number,
        id: number,
    }
}

fn ring() -> (Writer, TimelineReader) {
    let ring = Arc::new(Timeline::new());
    (Writer::new(Arc::clone(&ring)), TimelineReader::new(ring))
}

fn write(writer: &mut Writer, moment: &Moment) {
    writer.add(moment);
}

fn read(reader: &mut TimelineReader) -> (Vec<Moment>, bool) {
    let mut moments = Vec::new();
    let missed = reader.read(&mut moments);
    (moments, missed)
}

/// A step with lists of these lengths, and nothing that is 0.
fn step(rows: u64, ranges: u64) -> StepMoment {
    StepMoment {
        record: StepRecord {
            step_no: 7,
            started_us: 1_000,
            predicted_us: 2_000,
            budget_us: u64::MAX,
            actual_us: 3_000,
            io_us: 400,
            contended: true,
            floor_limited: true,
            decode: (1..=rows).collect(),
            prefill: (1..=ranges)
                .map(|id| Prefill {
                    id: 1_000 + id,
                    start: 32,
                    tokens: 64,
                    last: id % 2 == 0,
                })
                .collect(),
            io: Some(IoRecord::Load { id: 9, blocks: 3 }),
        },
        rows: u32::try_from(rows).unwrap(),
        queued: 5,
        resident: 6,
        blocks_used: 70,
        blocks_cached: 80,
    }
}

#[test]
fn every_kind_of_moment_comes_out_as_it_went_in() {
    let (mut writer, mut reader) = ring();
    let mut moments: Vec<Moment> = vec![
        Moment::Arrived {
            at_us: u64::MAX,
            id: 3,
            tenant: u32::MAX,
            priority: Priority::High,
            prompt_tokens: 100,
            stored_tokens: 64,
            max_new: 50,
            cache: true,
        },
        admitted(0),
        Moment::Started {
            at_us: 1,
            id: 3,
            cached_tokens: 32,
        },
        Moment::Step(step(3, 2)),
        Moment::Step(StepMoment::default()),
        Moment::Step(StepMoment {
            record: StepRecord {
                io: Some(IoRecord::Save { blocks: 4 }),
                ..StepRecord::default()
            },
            ..StepMoment::default()
        }),
        Moment::Parked { at_us: 2, id: 3 },
        Moment::Unparked { at_us: 3, id: 3 },
    ];
    let ends = [
        Ending::Stop,
        Ending::Length,
        Ending::Cancelled,
        Ending::Failed,
    ];
    moments.extend(ends.map(|how| Moment::Ended {
        at_us: 4,
        id: 3,
        how,
        cached_tokens: 96,
        tokens: 17,
    }));
    for moment in &moments {
        write(&mut writer, moment);
    }
    assert_eq!(read(&mut reader), (moments, false));
    assert_eq!(read(&mut reader), (Vec::new(), false));
}

#[test]
fn a_step_of_thousands_fits_a_page_and_says_how_many_there_were() {
    let (mut writer, mut reader) = ring();
    let whole = step(4000, 4000);
    write(&mut writer, &Moment::Step(whole.clone()));
    write(&mut writer, &admitted(1));
    let (moments, _) = read(&mut reader);
    let [Moment::Step(listed), last] = &moments[..] else {
        panic!("{moments:?}");
    };
    assert_eq!((listed.rows, last), (4000, &admitted(1)));
    let (rows, ranges) = (listed.record.decode.len(), listed.record.prefill.len());
    assert!(rows >= 500 && ranges >= 200, "{rows}, {ranges}");
    assert_eq!(listed.record.decode, whole.record.decode[..rows]);
    assert_eq!(listed.record.prefill, whole.record.prefill[..ranges]);
}

#[test]
fn a_reader_that_keeps_up_misses_nothing_however_long_it_goes_on() {
    let (mut writer, mut reader) = ring();
    let (mut written, mut seen) = (0, 0);
    // Some thirty times round.
    for size in (1..100).cycle().take(60_000) {
        write(&mut writer, &Moment::Step(step(size, size % 7)));
        written += 1;
        if written % 50 == 0 {
            let (moments, missed) = read(&mut reader);
            assert!(!missed);
            for moment in &moments {
                assert!(
                    matches!(moment, Moment::Step(step) if step.queued == 5),
                    "{moment:?}"
                );
            }
            seen += moments.len();
        }
    }
    assert_eq!(seen, written);
}

#[test]
fn a_slow_reader_is_told_and_goes_on_with_the_latest() {
    let (mut writer, mut reader) = ring();
    for number in 0..200_000 {
        write(&mut writer, &admitted(number));
    }
    let (moments, missed) = read(&mut reader);
    assert!(missed);
    // Three words each, and a page of the ring is being written.
    assert!(
        moments.len() as u64 >= WORDS / 3 - PAGE,
        "{}",
        moments.len()
    );
    let first = 200_000 - moments.len() as u64;
    assert!(moments.into_iter().eq((first..200_000).map(admitted)));
    assert_eq!(read(&mut reader), (Vec::new(), false));
}

#[test]
fn nobody_reads_what_is_half_written() {
    let (mut writer, reader) = ring();
    let ended = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (mut reader, ended) = (reader.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                let mut last = 0;
                while !ended.load(Ordering::Relaxed) {
                    for moment in read(&mut reader).0 {
                        let Moment::Arrived {
                            at_us,
                            id,
                            prompt_tokens,
                            max_new,
                            ..
                        } = moment
                        else {
                            panic!("{moment:?}");
                        };
                        let number = u64::from(prompt_tokens);
                        assert_eq!((at_us, id, u64::from(max_new)), (number, number, number));
                        assert!(number > last, "{number} after {last}");
                        last = number;
                    }
                }
            })
        })
        .collect();
    for number in 1..=300_000_u32 {
        let moment = Moment::Arrived {
            at_us: number.into(),
            id: number.into(),
            tenant: 1,
            priority: Priority::Normal,
            prompt_tokens: number,
            stored_tokens: 0,
            max_new: number,
            cache: true,
        };
        write(&mut writer, &moment);
    }
    ended.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.join().expect("a reader saw what was written");
    }
}
