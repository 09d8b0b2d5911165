//! The table of block formats: the only list of them.

use std::fmt;

use crate::{Fault, quant};

/// From one row per format (variant, ggml's id, module in `quant`, and `quantize` where the module
/// has it): the enum, its facts and the dispatch to the reference arithmetic. The formats behind `tables` are none of weights.
macro_rules! quant {
    (
        weights { $($variant:ident, $id:literal, $module:ident $(, $quantize:ident)?;)* }
        tables { $($table:ident, $table_id:literal, $table_module:ident;)* }
    ) => {
        /// How the elements of a tensor are stored: in blocks of a fixed number of elements and
        /// bytes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[expect(non_camel_case_types, reason = "the field's names")]
        pub enum Format {
            $(
                #[doc = concat!("See [`quant::", stringify!($module), "`].")]
                $variant,
            )*
            $(
                #[doc = concat!("See [`quant::", stringify!($table_module), "`].")]
                $table,
            )*
        }

        impl Format {
            /// All formats of weights, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The format of ggml's id (`ggml_type` in `ggml.h`).
            pub fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(Self::$variant),)*
                    $($table_id => Some(Self::$table),)*
                    _ => None,
                }
            }

            /// ggml's id.
            pub fn id(self) -> u32 {
                match self {
                    $(Self::$variant => $id,)*
                    $(Self::$table => $table_id,)*
                }
            }

            /// The field's name, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                    $(Self::$table => stringify!($table),)*
                }
            }

            /// Elements of one block.
            pub const fn block_len(self) -> usize {
                match self {
                    $(Self::$variant => quant::$module::BLOCK_LEN,)*
                    $(Self::$table => quant::$table_module::BLOCK_LEN,)*
                }
            }

            /// Bytes of one block.
            pub const fn block_bytes(self) -> usize {
                match self {
                    $(Self::$variant => quant::$module::BLOCK_BYTES,)*
                    $(Self::$table => quant::$table_module::BLOCK_BYTES,)*
                }
            }

            pub(crate) fn dequantize(self, bytes: &[u8], out: &mut [f32]) {
                match self {
                    $(Self::$variant => quant::dequantize_blocks(bytes, out, quant::$module::dequantize),)*
                    $(Self::$table => quant::dequantize_blocks(bytes, out, quant::$table_module::dequantize),)*
                }
            }

            fn quantizer(self) -> Option<fn(&[f32], &mut Vec<u8>)> {
                match self {
                    $($(Self::$variant => Some(|values, out| {
                        quant::quantize_blocks(values, out, quant::$module::$quantize);
                    }),)?)*
                    _ => None,
                }
            }
        }
    };
}

quant! {
    weights {
        F32, 0, f32, quantize;
        F16, 1, f16, quantize;
        BF16, 30, bf16, quantize;
        Q4_0, 2, q4_0, quantize;
        Q4_1, 3, q4_1, quantize;
        Q5_0, 6, q5_0, quantize;
        Q5_1, 7, q5_1, quantize;
        Q8_0, 8, q8_0, quantize;
        Q2_K, 10, q2_k;
        Q3_K, 11, q3_k;
        Q4_K, 12, q4_k, quantize;
        Q5_K, 13, q5_k, quantize;
        Q6_K, 14, q6_k, quantize;
        IQ1_S, 19, iq1_s;
        IQ1_M, 29, iq1_m;
        IQ2_XXS, 16, iq2_xxs;
        IQ2_XS, 17, iq2_xs;
        IQ2_S, 22, iq2_s;
        IQ3_XXS, 18, iq3_xxs;
        IQ3_S, 21, iq3_s;
        IQ4_NL, 20, iq4_nl;
        IQ4_XS, 23, iq4_xs;
        MXFP4, 39, mxfp4, quantize;
    }
    tables {
        I32, 26, i32;
    }
}

/// Formats that files may hold and this crate cannot read, so that a refusal can name them.
const UNSUPPORTED: [(u32, &str); 12] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (24, "I8"),
    (25, "I16"),
    (27, "I64"),
    (28, "F64"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (34, "TQ1_0"),
    (35, "TQ2_0"),
    (40, "NVFP4"),
];

impl Format {
    /// The format of an id out of a file, or why it cannot be read.
    pub(crate) fn read(id: u32) -> Result<Self, Fault> {
        let unsupported = || UNSUPPORTED.iter().find(|known| known.0 == id);
        Self::from_id(id).ok_or_else(|| match unsupported() {
            Some(&(id, name)) => Fault::UnsupportedFormat { id, name },
            None => Fault::UnknownFormat { id },
        })
    }

    /// Whether values can be stored in this format; if not, it can only be read.
    pub fn can_quantize(self) -> bool {
        self.quantizer().is_some()
    }

    pub(crate) fn quantize(self, values: &[f32], out: &mut Vec<u8>) {
        let Some(quantize) = self.quantizer() else {
            panic!("{self} is a format to read only");
        };
        quantize(values, out);
    }

    /// Bytes of a row of `cols` elements.
    ///
    /// # Panics
    /// When `cols` is not a whole number of blocks.
    pub fn row_bytes(self, cols: usize) -> usize {
        assert_eq!(
            cols % self.block_len(),
            0,
            "a row of {cols} is not whole blocks of {self}"
        );
        cols / self.block_len() * self.block_bytes()
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
