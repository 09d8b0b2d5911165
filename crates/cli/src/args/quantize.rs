//! The command line of `quantize`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::models::ModelRef;

/// Options of `quantize`.
#[derive(Args, Debug)]
pub(crate) struct QuantizeArgs {
    /// Model of F16, BF16 or F32 weights: GGUF file (any part of a split one), hf:owner/repo/file.gguf, or a name
    pub(crate) input: ModelRef,
    /// File to write; an existing one is replaced when all went well
    pub(crate) output: PathBuf,
    /// Format of the matrices; the output matrix, which matters most, gets at least Q6_K
    #[arg(long = "type", value_enum, ignore_case = true, value_name = "TYPE")]
    pub(crate) format: QuantizeType,
    /// Threads that compute [default: as many as the system offers]
    #[arg(short, long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

/// Format of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuantizeType {
    /// 4.5 bits a weight
    #[value(name = "q4_0")]
    Q4_0,
    /// 8.5 bits
    #[value(name = "q8_0")]
    Q8_0,
    /// 4.5 bits; q4_k_s and q4_k_m are taken for it: there is no mixture of formats here
    #[value(name = "q4_k", aliases = ["q4_k_s", "q4_k_m"])]
    Q4K,
    /// 5.5 bits; so are q5_k_s and q5_k_m
    #[value(name = "q5_k", aliases = ["q5_k_s", "q5_k_m"])]
    Q5K,
    /// 6.6 bits
    #[value(name = "q6_k")]
    Q6K,
}
