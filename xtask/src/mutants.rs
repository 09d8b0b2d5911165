//! `cargo xtask mutants`: takes each safeguard of the scheduler away and asks that the test named for it fails.
//!
//! A test that passes with and without what it is there for proves nothing. The crate is copied below `target/`, changed
//! there in one place at a time, and the named test must fail; a place that is not found exactly once means that the list
//! is out of date.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

/// One safeguard: where it stands, what is left without it, and the test that must see the difference.
struct Mutant {
    what: &'static str,
    /// Below `crates/sched/src`.
    file: &'static str,
    from: &'static str,
    to: &'static str,
    test: &'static str,
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        what: "a prefix without a checkpoint",
        file: "stateful.rs",
        from: "checkpoints.is_none_or(|checkpoints| checkpoints.has(before))",
        to: "checkpoints.is_some() || checkpoints.is_none()",
        test: "scheduler::tests::states::prompts_and_answers_keep_checkpoints_at_block_ends",
    },
    Mutant {
        what: "the way back from half a load",
        file: "stateful.rs",
        from: "            self.computed = start;\n",
        to: "",
        test: "scheduler::tests::states::half_a_load_is_of_no_use",
    },
    Mutant {
        what: "a checkpoint that goes with its block",
        file: "blocks.rs",
        from: "checkpoints.drop_of(block);",
        to: "checkpoints.pass(block);",
        test: "scheduler::tests::states::a_checkpoint_goes_with_its_block",
    },
    Mutant {
        what: "the turn owed to the decoders",
        file: "policy.rs",
        from: "self.decode_owed || self.credit < 0",
        to: "self.credit < 0",
        test: "policy::tests::after_a_prefill_turn_the_decoders_are_owed_one",
    },
    Mutant {
        what: "the room that prompts leave for saving",
        file: "policy.rs",
        from: "let kept = self.kept_for_saving(view, regime, room);",
        to: "let kept = 0;",
        test: "policy::tests::prompts_leave_room_for_saving",
    },
    Mutant {
        what: "the oldest prompt's part",
        file: "policy.rs",
        from: "let part = 1000 - self.oldest_permille;",
        to: "let part = 1000_u32;",
        test: "scheduler::tests::scenarios::f11_a_long_prompt_keeps_its_part_under_endless_short_ones",
    },
    Mutant {
        what: "the floor beside decoders",
        file: "policy.rs",
        from: "let forced = self.below_floor(view, Regime::Mixed);",
        to: "let forced = false;",
        test: "policy::tests::prompts_progress_even_without_room",
    },
    Mutant {
        what: "the floor of a prefill turn",
        file: "policy.rs",
        from: "self.below_floor(view, Regime::Prefill)\n",
        to: "false\n",
        test: "policy::tests::prompts_progress_even_without_room",
    },
    Mutant {
        what: "the end of a cancelled sequence with its step",
        file: "scheduler/collect.rs",
        from: "sequence.draining || self.settle_outcome(slot, outcome)",
        to: "self.settle_outcome(slot, outcome)",
        test: "scheduler::tests::scenarios::f19_a_client_that_leaves_is_gone_within_a_step",
    },
    Mutant {
        what: "the salt of keys",
        file: "prefix.rs",
        from: "0x9e37_79b9_7f4a_7c15 ^ salt",
        to: "0x9e37_79b9_7f4a_7c15 ^ (salt & 0)",
        test: "scheduler::tests::sharing::what_is_salted_is_found_under_the_same_salt_only",
    },
    Mutant {
        what: "a last block that is written on is nobody else's",
        file: "blocks.rs",
        from: "        self.hold(block);\n        self.index.remove(block);\n",
        to: "        self.hold(block);\n",
        test: "scheduler::tests::random::any_log_keeps_the_invariants",
    },
    Mutant {
        what: "only whole blocks are saved",
        file: "blocks.rs",
        from: "if !unsaved.saved[block as usize] && self.index.is_full(block) {",
        to: "if !unsaved.saved[block as usize] && self.index.contains(block) {",
        test: "scheduler::tests::random::any_log_keeps_the_invariants",
    },
    Mutant {
        what: "the clamp of credit where steps mix",
        file: "policy.rs",
        from: "self.credit = self.credit.saturating_sub(cost).clamp(-stall, stall);",
        to: "self.credit = self.credit.saturating_sub(cost);",
        test: "policy::tests::credit_is_neither_hoarded_nor_owed_without_end",
    },
    Mutant {
        what: "the clamp of debt where turns alternate",
        file: "policy.rs",
        from: "self.credit = (self.credit - cost).max(-most);",
        to: "self.credit = self.credit - cost;",
        test: "policy::tests::credit_is_neither_hoarded_nor_owed_without_end",
    },
    Mutant {
        what: "the end of the reservation after one wait",
        file: "policy.rs",
        from: "            self.reservation = false;\n",
        to: "",
        test: "policy::tests::at_most_one_wait_at_a_step_boundary",
    },
    Mutant {
        what: "the least-served tenant's turn",
        file: "policy.rs",
        from: "(prompt.turn, prompt.remaining, index)",
        to: "((0, 0, 0), prompt.remaining, index)",
        test: "policy::tests::the_flow_whose_turn_it_is_gets_what_it_can_use",
    },
    Mutant {
        what: "the lift of who begins to wait",
        file: "tenants.rs",
        from: "rival.charged = rival.charged.max(*clock);",
        to: "",
        test: "tenants::tests::who_begins_to_wait_starts_level_and_keeps_its_debts",
    },
    Mutant {
        what: "the charge of computed rows",
        file: "scheduler/collect.rs",
        from: "self.tenants.charge(sequence.flow, part);",
        to: "_ = part;",
        test: "scheduler::tests::scenarios::a_tenant_with_ten_times_the_load_gets_a_third",
    },
    Mutant {
        what: "the time that a load takes from the budget",
        file: "policy.rs",
        from: "left.room -= load.units(blocks);",
        to: "",
        test: "policy::tests::a_load_takes_its_part_of_the_budget",
    },
    Mutant {
        what: "one I/O unit at a time",
        file: "scheduler.rs",
        from: "loadable > 0 && self.outstanding.is_some()",
        to: "false",
        test: "scheduler::tests::scenarios::f21_a_load_of_a_gone_client_keeps_its_blocks_until_it_ends",
    },
    Mutant {
        what: "the blocks of a cancelled load",
        file: "scheduler.rs",
        from: "if sequence.in_step || sequence.loading {",
        to: "if sequence.in_step {",
        test: "scheduler::tests::scenarios::f21_a_load_of_a_gone_client_keeps_its_blocks_until_it_ends",
    },
    Mutant {
        what: "the check of a completion's step number",
        file: "scheduler/collect.rs",
        from: "!self.in_flight || step_no != self.step.step_no",
        to: "!self.in_flight",
        test: "scheduler::tests::explore::mixing_keeps_the_invariants",
    },
];

/// Tries every mutant; reports all that survive.
pub(crate) fn run(root: &Path) -> Result<()> {
    let copy = copy(root)?;
    let mut survivors = Vec::new();
    for mutant in MUTANTS {
        let path = copy.join("crates/sched/src").join(mutant.file);
        let source =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(
            source.matches(mutant.from).count() == 1,
            "{}: `{}` is not there exactly once; bring the list of mutants up to date",
            mutant.file,
            mutant.from.trim()
        );
        fs::write(&path, source.replace(mutant.from, mutant.to))?;
        let killed = is_killed(&copy, mutant);
        fs::write(&path, source)?;
        report(mutant, killed?, &mut survivors);
    }
    ensure!(
        survivors.is_empty(),
        "no test misses {}",
        survivors.join(", ")
    );
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a command-line tool talks to its user")]
fn report(mutant: &Mutant, killed: bool, survivors: &mut Vec<&'static str>) {
    let verdict = if killed { "caught by" } else { "SURVIVES" };
    eprintln!("without {}: {verdict} {}", mutant.what, mutant.test);
    if !killed {
        survivors.push(mutant.what);
    }
}

/// A workspace with the scheduler alone.
fn copy(root: &Path) -> Result<PathBuf> {
    let copy = root.join("target/mutants");
    let folder = copy.join("crates/sched");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    copy_folder(&root.join("crates/sched"), &folder)?;
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let members = "members = [\"crates/*\", \"xtask\"]";
    ensure!(
        manifest.contains(members),
        "the workspace has other members"
    );
    let manifest = manifest
        .replace(members, "members = [\"crates/sched\"]")
        .replace("default-members = [\"crates/cli\"]\n", "");
    fs::write(copy.join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(copy)
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Whether the mutant's test fails. One that does not compile, or does not run, is a fault of the list.
fn is_killed(copy: &Path, mutant: &Mutant) -> Result<bool> {
    let built = cargo(copy, &["test", "--quiet", "--lib", "--no-run"])?;
    if !built.status.success() {
        bail!(
            "without {} the crate does not compile:\n{}",
            mutant.what,
            String::from_utf8_lossy(&built.stderr)
        );
    }
    let tested = cargo(copy, &["test", "--lib", "--", "--exact", mutant.test])?;
    let output = String::from_utf8_lossy(&tested.stdout);
    ensure!(
        output.contains("running 1 test"),
        "there is no test {}",
        mutant.test
    );
    Ok(!tested.status.success())
}

fn cargo(copy: &Path, args: &[&str]) -> Result<Output> {
    Command::new(env!("CARGO"))
        .args(args)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .output()
        .context("cannot start cargo")
}
