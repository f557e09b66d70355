//! What the benches share: the sizes that readers know, and values to fill them with.

use ndarray::{Array2, Array3};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// A batch of sequences and the table that they read.
pub struct Size {
    pub batch: usize,
    pub len: usize,
    pub n_embd: usize,
    pub block_size: usize,
}

/// GPT-2 XL's prompt of four tokens, the text generator, the music Transformer, a batch of the text generator, and a
/// batch of GPT-2 XL: from well inside the cache to well outside it.
pub const SIZES: [Size; 5] = [
    Size {
        batch: 1,
        len: 4,
        n_embd: 1600,
        block_size: 1024,
    },
    Size {
        batch: 1,
        len: 128,
        n_embd: 256,
        block_size: 128,
    },
    Size {
        batch: 1,
        len: 2048,
        n_embd: 512,
        block_size: 2048,
    },
    Size {
        batch: 32,
        len: 128,
        n_embd: 256,
        block_size: 128,
    },
    Size {
        batch: 8,
        len: 1024,
        n_embd: 1600,
        block_size: 1024,
    },
];

impl Size {
    pub fn name(&self) -> String {
        format!("{}x{}x{}", self.batch, self.len, self.n_embd)
    }

    /// Values in the embeddings of a batch.
    pub fn values(&self) -> usize {
        self.batch * self.len * self.n_embd
    }

    pub fn bytes(&self) -> u64 {
        (self.values() * size_of::<f32>()) as u64
    }

    pub fn x(&self) -> Array3<f32> {
        let mut rng = rng();
        Array3::from_shape_simple_fn((self.batch, self.len, self.n_embd), || rng.random())
    }

    pub fn table(&self) -> Array2<f32> {
        let mut rng = rng();
        Array2::from_shape_simple_fn((self.block_size, self.n_embd), || rng.random())
    }

    /// Positions `0..len` in another order.
    pub fn shuffled(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.len).collect();
        positions.shuffle(&mut rng());
        positions
    }
}

pub fn rng() -> StdRng {
    StdRng::seed_from_u64(2017)
}
