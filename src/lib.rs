//! Positions for Transformers on [`ndarray`]: learned and sinusoidal embeddings, each with a forward pass and a hand-written
//! backward pass.
//!
//! A Transformer reads all its tokens at once; without positions, a sentence is a bag of words. Here positions are vectors
//! that are added to token embeddings before the first block:
//!
//! ```text
//! ids ── TokenEmbedding ──► token_embeds ─┐
//!                                         +──► x ──► blocks          InputEmbedding does all of it in one pass
//! positions ── AbsoluteEncoding ──────────┘
//! ```
//!
//! ```
//! use ndarray::Array2;
//! use positional_embedding::PositionalEmbedding;
//!
//! let mut table = PositionalEmbedding::<f32>::new(1024, 1600, &mut rand::rng())?; // GPT-2 XL
//! let token_embeds = Array2::zeros((4, 1600)); // "this is a prompt"
//! let x = table.forward(&token_embeds, 0..4)?;
//! let grad_x = &x; // whatever the model above sends back
//! table.backward_rows(grad_x, 0..4)?.scaled_add_to(-0.1, &mut table.weight_mut())?;
//! assert_eq!(x.dim(), (4, 1600));
//! # Ok::<(), positional_embedding::Error>(())
//! ```
//!
//! # Which method when
//!
//! | type | rows | longest position | known from |
//! |---|---|---|---|
//! | [`PositionalEmbedding`] | learned, `block_size × n_embd` | `block_size − 1` | GPT-2, BERT, OPT, ViT |
//! | [`SinusoidalEncoding`] | sines and cosines, nothing to learn | any | the original Transformer |
//!
//! Both are an [`AbsoluteEncoding`], so that a model is written once and given either.
//!
//! # Verbs
//!
//! | verb | meaning |
//! |---|---|
//! | `forward(&x, positions)` | a new result |
//! | `forward_inplace(&mut x, positions)` | writes into `x` |
//! | `forward_into(&x, positions, &mut out)` | writes into the caller's buffer |
//! | `backward(&grad_out, positions)` | a new gradient of the whole table |
//! | `backward_into(&grad_out, positions, &mut grad_weight)` | **adds** to the caller's gradient |
//! | `backward_rows(&grad_out, positions)` | the gradient of the rows that were read, a [`RowGradient`] |
//!
//! Arrays may be owned, views, slices or transposes of any strides and any rank from 2 on: the last axis is `n_embd`, the one
//! before it `len`, the first of three or more `batch`; axes between them share positions. [`Positions`] are a range, a list
//! that the batch shares, or one row for each sequence.
//!
//! # Words
//!
//! `batch`: sequences. `len`: tokens in a sequence. `n_embd`: width of an embedding. `block_size`: rows of a position table.
//! `vocab_size`: rows of a token table. `positions`: the places of tokens. `grad_<value>`: the gradient of that value.
//!
//! # What holds everywhere
//!
//! - **Errors.** What comes from a caller is checked before anything is written; an [`Error`] names the value, the limit and
//!   the place, and leaves every buffer as it was. Nothing wraps, is clamped, stretched or silently zero.
//! - **Empty is quiet.** No tokens or no sequences give an empty result and no gradient.
//! - **Precision.** Angles and sums are f64 whatever the element type, and are rounded once.
//! - **Determinism.** The same input gives the same bits on every machine.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)
)]

mod absolute;
mod error;
mod float;
mod gradient;
mod indices;
mod input;
mod integer;
mod kernel;
mod positions;
mod table;

pub use absolute::{AbsoluteEncoding, Layout, PositionalEmbedding, SinusoidalEncoding};
pub use error::{Error, Result};
pub use float::Float;
pub use gradient::RowGradient;
pub use input::{DropoutMask, InputEmbedding, InputGradient, TokenEmbedding};
pub use integer::Integer;
pub use positions::{Positions, RankedPositions};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
