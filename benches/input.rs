//! Tokens plus positions, from ids to the first block of a Transformer and back.
//!
//! `cargo bench --bench input`. `flat` is the limit of the machine, `two_steps` the same in two passes over memory.

mod common;

use std::hint::black_box;

use common::{SIZES, Size, rng};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, Array3};
use positional_embedding::{
    InputEmbedding, PositionalEmbedding, SinusoidalEncoding, TokenEmbedding,
};
use rand::RngExt;

const VOCAB_SIZE: usize = 50_257;

fn ids(size: &Size) -> Array2<u32> {
    let mut rng = rng();
    Array2::from_shape_simple_fn((size.batch, size.len), || {
        rng.random_range(0..VOCAB_SIZE as u32)
    })
}

fn input(size: &Size) -> InputEmbedding {
    let tokens = TokenEmbedding::new(VOCAB_SIZE, size.n_embd, &mut rng()).unwrap();
    InputEmbedding::new(
        tokens,
        PositionalEmbedding::from_weight(size.table()).unwrap(),
    )
    .unwrap()
}

fn forward(c: &mut Criterion) {
    let mut group = c.benchmark_group("input_forward");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(2 * size.bytes()));
        let (input, ids) = (input(size), ids(size));
        let (flat_x, flat_y) = (vec![1.0_f32; size.values()], vec![0.5_f32; size.values()]);
        group.bench_function(BenchmarkId::new("flat", size.name()), |b| {
            b.iter(|| {
                black_box(&flat_x)
                    .iter()
                    .zip(black_box(&flat_y))
                    .map(|(x, y)| x + y)
                    .collect::<Vec<f32>>()
            });
        });
        group.bench_function(BenchmarkId::new("fused", size.name()), |b| {
            b.iter(|| input.forward(black_box(&ids), 0..size.len).unwrap());
        });
        group.bench_function(BenchmarkId::new("two_steps", size.name()), |b| {
            b.iter(|| {
                let token_embeds = input.tokens().forward(black_box(&ids)).unwrap();
                input
                    .positions()
                    .forward(&token_embeds, 0..size.len)
                    .unwrap()
            });
        });
        let mut out = Array3::zeros((size.batch, size.len, size.n_embd));
        group.bench_function(BenchmarkId::new("into", size.name()), |b| {
            b.iter(|| {
                input
                    .forward_into(black_box(&ids), 0..size.len, black_box(&mut out))
                    .unwrap()
            });
        });
        let dropout = input.clone().with_dropout(0.1).unwrap();
        let mut rng = rng();
        group.bench_function(BenchmarkId::new("dropout", size.name()), |b| {
            b.iter(|| {
                dropout
                    .forward_train(black_box(&ids), 0..size.len, &mut rng)
                    .unwrap()
            });
        });
        let fixed = InputEmbedding::new(
            input.tokens().clone(),
            SinusoidalEncoding::new(size.n_embd).unwrap(),
        )
        .unwrap();
        group.bench_function(BenchmarkId::new("sinusoidal", size.name()), |b| {
            b.iter(|| fixed.forward(black_box(&ids), 0..size.len).unwrap());
        });
    }
}

fn backward(c: &mut Criterion) {
    let mut group = c.benchmark_group("input_backward");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(size.bytes()));
        let (input, ids, grad_out) = (input(size), ids(size), size.x());
        group.bench_function(BenchmarkId::new("rows", size.name()), |b| {
            b.iter(|| {
                input
                    .backward_rows(black_box(&grad_out), &ids, 0..size.len, None)
                    .unwrap()
            });
        });
    }
}

criterion_group!(benches, forward, backward);
criterion_main!(benches);
