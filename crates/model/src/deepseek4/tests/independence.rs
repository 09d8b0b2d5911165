//! Rows are independent, and a running state is all that a sequence needs beside its blocks.

use super::*;
use andante_compute::Isa;
use andante_gguf::Format;

/// Keys in 8 bits, index rows in 4.
fn few_bits(threads: usize) -> CpuConfig {
    CpuConfig {
        threads: Some(threads),
        kv_type: KvType::Q8_0,
        ..CpuConfig::default()
    }
}

/// Configurations whose arithmetic is not the reference's too.
fn configs() -> [(&'static str, CpuConfig); 4] {
    let quantised = |threads| CpuConfig {
        threads: Some(threads),
        ..CpuConfig::default()
    };
    [
        ("exact", exact(2)),
        ("laid out, rows in half precision", quantised(2)),
        ("laid out, rows in few bits", few_bits(2)),
        (
            "in the file, portable",
            CpuConfig {
                weights: WeightForm::InFile,
                isa: Isa::available().into_iter().next(),
                ..quantised(1)
            },
        ),
    ]
}

#[test]
fn chunks_threads_and_blocks_do_not_matter() {
    let tokens = portable::ids(300);
    let (first, second) = (table(10, 0), table(10, 3));
    let sequence = |table, state| Sequence {
        tokens: &tokens,
        table,
        state,
    };
    let ragged = [3, 97, 2, 31, 7];
    for (what, config) in configs() {
        let whole = sequence(&first, 0).run(&mut model(config), 0, &[140]);
        let model = &mut model(CpuConfig {
            threads: Some(3),
            ..config
        });
        let found = sequence(&second, 5).run(model, 0, &ragged);
        assert_bits(&format!("{what}, ragged chunks"), &found, &whole);
        let found = sequence(&first, 1).run(model, 0, &[1; 140]);
        assert_bits(&format!("{what}, single steps"), &found, &whole);
    }
    let model = &mut model(exact(2));
    let whole = sequence(&first, 0).run(model, 0, &[300]);
    let found = sequence(&second, 5).run(model, 0, &[3, 97, 2, 61, 7, 130]);
    assert_bits("to the end", &found, &whole);
}

#[test]
fn weights_of_any_format_work_row_by_row() {
    let tokens = portable::ids(70);
    let blocks = table(3, 0);
    let sequence = Sequence {
        tokens: &tokens,
        table: &blocks,
        state: 0,
    };
    let exact = sequence.run(&mut model(exact(2)), 0, &[70]);
    for (format, threads) in [(Format::Q8_0, 2), (Format::Q4_K, 1), (Format::BF16, 2)] {
        let config = CpuConfig {
            threads: Some(threads),
            ..CpuConfig::default()
        };
        let model = try_load(portable::File::new().bytes(format), config).unwrap();
        let model = &mut reserved(model);
        let whole = sequence.run(model, 0, &[70]);
        let steps = sequence.run(model, 0, &[1; 70]);
        assert_bits(format.name(), &steps, &whole);
        // A choice that falls otherwise moves a row's logits, whose deviation is 2, by much: most rows stay near.
        let mut errors: Vec<f32> = whole
            .iter()
            .zip(&exact)
            .map(|(a, b)| (a - b).abs())
            .collect();
        errors.sort_by(f32::total_cmp);
        let median = errors[errors.len() / 2];
        assert!(
            median < 0.5 && median > 0.0,
            "{format}: median error {median}"
        );
    }
}

#[test]
fn neighbours_do_not_matter() {
    let tokens = portable::ids(300);
    let backwards: Vec<u32> = tokens.iter().rev().copied().collect();
    let tables = [table(10, 0), (76..86).collect(), (16..26).collect()];
    // The blocks of no two of them are the same.
    let mut blocks = tables.concat();
    blocks.sort_unstable();
    blocks.dedup();
    assert_eq!(blocks.len(), 30);
    let sequence = |tokens, index: usize| Sequence {
        tokens,
        table: &tables[index],
        state: index as u32,
    };
    let (a, b, c) = (
        sequence(&tokens, 0),
        sequence(&backwards, 1),
        sequence(&tokens[17..], 2),
    );
    for (what, config) in configs().into_iter().take(3) {
        let model = &mut model(config);
        let alone = a.run(model, 0, &[180]);
        let mut found = Vec::new();
        b.run(model, 0, &[130]);
        for (own, of_b, of_c) in [
            (0..50, 130..131, 0..127),
            (50..51, 131..140, 127..129),
            (51..180, 140..141, 129..130),
        ] {
            let mut batch = Batch::default();
            b.push(&mut batch, of_b.clone());
            a.push(&mut batch, own.clone());
            c.push(&mut batch, of_c);
            let all = forward(model, &batch);
            let vocab = portable::VOCAB as usize;
            found.extend(&all[of_b.len() * vocab..][..own.len() * vocab]);
        }
        assert_bits(what, &found, &alone);
    }
}

#[test]
fn a_sequence_goes_on_from_its_state_and_blocks() {
    // Each remainder by 4, both sides of a window of 32 and of a window of 128, and deep in the third.
    let all = [
        1, 2, 3, 4, 31, 32, 33, 63, 64, 127, 128, 129, 130, 131, 255, 256, 257, 290,
    ];
    goes_on_from(exact(2), &all);
}

#[test]
fn rows_in_fewer_bits_are_gone_on_from_too() {
    for (_, config) in &configs()[1..3] {
        goes_on_from(*config, &[3, 33, 64, 127, 128, 130, 257]);
    }
}

/// At each of these positions the sequence goes on from copies of what it has left behind.
fn goes_on_from(config: CpuConfig, positions: &[usize]) {
    let (tokens, blocks) = (portable::ids(300), table(10, 0));
    let sequence = |state| Sequence {
        tokens: &tokens,
        table: &blocks,
        state,
    };
    let model = &mut model(config);
    let whole = sequence(0).run(model, 0, &[300]);
    let vocab = portable::VOCAB as usize;
    let layout = model.kv_layout();
    let (mut state, mut block) = (
        vec![0; layout.state_bytes as usize],
        vec![0; layout.block_bytes as usize],
    );
    for &position in positions {
        sequence(1).run(model, 0, &[position]);
        // Copied within the model, while another sequence takes the first one's place.
        model.copy_state(1, 2);
        model.read_state(1, &mut state);
        let elsewhere: Vec<u32> = blocks.iter().map(|block| (block + 1) % 96).collect();
        let used = position.div_ceil(BLOCK);
        for (&from, &to) in blocks.iter().zip(&elsewhere).take(used) {
            model.read_block(from, &mut block);
            model.write_block(to, &block);
        }
        let rest = &whole[position * vocab..];
        let found = sequence(2).run(model, position, &[1, 299 - position]);
        assert_bits(&format!("copied at {position}"), &found, rest);
        // Saved and brought back elsewhere.
        model.write_state(7, &state);
        let restored = Sequence {
            tokens: &tokens,
            table: &elsewhere,
            state: 7,
        };
        let found = restored.run(model, position, &[300 - position]);
        assert_bits(&format!("restored at {position}"), &found, rest);
    }
}

/// What is saved of a sequence shows nothing of the one that had its place before.
#[test]
fn a_new_sequence_begins_with_an_empty_state() {
    let (tokens, blocks) = (portable::ids(40), table(2, 0));
    let sequence = |tokens, state| Sequence {
        tokens,
        table: &blocks,
        state,
    };
    let model = &mut model(exact(1));
    let bytes = model.kv_layout().state_bytes as usize;
    let (mut fresh, mut used) = (vec![0; bytes], vec![0; bytes]);
    sequence(&tokens[..3], 0).run(model, 0, &[3]);
    sequence(&tokens, 1).run(model, 0, &[40]);
    sequence(&tokens[..3], 1).run(model, 0, &[3]);
    model.read_state(0, &mut fresh);
    model.read_state(1, &mut used);
    assert!(fresh == used);
}
