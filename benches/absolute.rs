//! Adding positions to token embeddings, and the gradient that comes back.
//!
//! `cargo bench --bench absolute`, or `-- forward/` for one group. In each group `flat` is the limit of the machine (the
//! same traffic without any positions), `ndarray` what one would write without this crate.

mod common;

use std::hint::black_box;

use common::{SIZES, Size};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ndarray::{Array2, Array3, Axis};
use positional_embedding::{Layout, PositionalEmbedding, SinusoidalEncoding};

/// `out = x + y` on slices of the same length.
fn flat_sum(x: &[f32], y: &[f32], out: &mut [f32]) {
    for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
        *out = x + y;
    }
}

fn slices(size: &Size) -> (Vec<f32>, Vec<f32>) {
    (
        size.x().into_raw_vec_and_offset().0,
        vec![0.5; size.values()],
    )
}

/// A new result from each call.
fn forward(c: &mut Criterion) {
    let mut group = c.benchmark_group("forward");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(2 * size.bytes()));
        let (table, x, shuffled) = (table(size), size.x(), size.shuffled());
        let (flat_x, flat_y) = slices(size);
        group.bench_function(BenchmarkId::new("flat", size.name()), |b| {
            b.iter(|| {
                black_box(&flat_x)
                    .iter()
                    .zip(black_box(&flat_y))
                    .map(|(x, y)| x + y)
                    .collect::<Vec<f32>>()
            });
        });
        group.bench_function(BenchmarkId::new("contiguous", size.name()), |b| {
            b.iter(|| {
                black_box(&table)
                    .forward(black_box(&x), 0..size.len)
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("shuffled", size.name()), |b| {
            b.iter(|| black_box(&table).forward(black_box(&x), &shuffled).unwrap());
        });
        let positions: Vec<usize> = (0..size.len).collect();
        group.bench_function(BenchmarkId::new("ndarray", size.name()), |b| {
            b.iter(|| black_box(&x) + &black_box(&table).weight().select(Axis(0), &positions));
        });
    }
}

/// Into a buffer that is there already.
fn forward_into(c: &mut Criterion) {
    let mut group = c.benchmark_group("forward_into");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(2 * size.bytes()));
        let (table, x, shuffled) = (table(size), size.x(), size.shuffled());
        let (flat_x, flat_y) = slices(size);
        let mut flat_out = vec![0.0; size.values()];
        group.bench_function(BenchmarkId::new("copy", size.name()), |b| {
            b.iter(|| black_box(&mut flat_out).copy_from_slice(black_box(&flat_x)));
        });
        group.bench_function(BenchmarkId::new("flat", size.name()), |b| {
            b.iter(|| {
                flat_sum(
                    black_box(&flat_x),
                    black_box(&flat_y),
                    black_box(&mut flat_out),
                )
            });
        });
        let mut out = Array3::zeros(x.dim());
        group.bench_function(BenchmarkId::new("contiguous", size.name()), |b| {
            b.iter(|| {
                black_box(&table)
                    .forward_into(black_box(&x), 0..size.len, black_box(&mut out))
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("shuffled", size.name()), |b| {
            b.iter(|| {
                black_box(&table)
                    .forward_into(black_box(&x), &shuffled, black_box(&mut out))
                    .unwrap()
            });
        });
    }
}

/// In place.
fn forward_inplace(c: &mut Criterion) {
    let mut group = c.benchmark_group("forward_inplace");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(2 * size.bytes()));
        let (table, mut x, shuffled) = (table(size), size.x(), size.shuffled());
        let (mut flat_x, flat_y) = slices(size);
        group.bench_function(BenchmarkId::new("flat", size.name()), |b| {
            b.iter(|| {
                black_box(&mut flat_x)
                    .iter_mut()
                    .zip(black_box(&flat_y))
                    .for_each(|(x, y)| *x += y)
            });
        });
        group.bench_function(BenchmarkId::new("contiguous", size.name()), |b| {
            b.iter(|| {
                black_box(&table)
                    .forward_inplace(black_box(&mut x), 0..size.len)
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("shuffled", size.name()), |b| {
            b.iter(|| {
                black_box(&table)
                    .forward_inplace(black_box(&mut x), &shuffled)
                    .unwrap()
            });
        });
    }
}

/// The gradient of the table, in its three forms.
fn backward(c: &mut Criterion) {
    let mut group = c.benchmark_group("backward");
    for size in &SIZES {
        group.throughput(Throughput::Bytes(size.bytes()));
        let (table, grad_out, shuffled) = (table(size), size.x(), size.shuffled());
        let flat = slices(size).0;
        group.bench_function(BenchmarkId::new("read", size.name()), |b| {
            b.iter(|| read(black_box(&flat)))
        });
        let mut grad_weight = Array2::zeros(table.weight().dim());
        group.bench_function(BenchmarkId::new("into", size.name()), |b| {
            b.iter(|| {
                table
                    .backward_into(
                        black_box(&grad_out),
                        0..size.len,
                        black_box(&mut grad_weight),
                    )
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("into_shuffled", size.name()), |b| {
            b.iter(|| {
                table
                    .backward_into(black_box(&grad_out), &shuffled, black_box(&mut grad_weight))
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("dense", size.name()), |b| {
            b.iter(|| table.backward(black_box(&grad_out), 0..size.len).unwrap());
        });
        group.bench_function(BenchmarkId::new("rows", size.name()), |b| {
            b.iter(|| {
                table
                    .backward_rows(black_box(&grad_out), 0..size.len)
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("ndarray", size.name()), |b| {
            b.iter(|| {
                let mut grad = Array2::<f32>::zeros((size.block_size, size.n_embd));
                for sequence in black_box(&grad_out).outer_iter() {
                    for (position, row) in sequence.outer_iter().enumerate() {
                        let mut target = grad.row_mut(position);
                        target += &row;
                    }
                }
                grad
            });
        });
    }
}

/// Reads every value once: the limit of a backward pass that writes little.
fn read(values: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 64];
    for chunk in values.as_chunks::<64>().0 {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

/// The fixed encoding: its table, and adding it.
fn sinusoidal(c: &mut Criterion) {
    let mut group = c.benchmark_group("sinusoidal");
    for size in &SIZES[..3] {
        group.throughput(Throughput::Bytes(
            (size.len * size.n_embd * size_of::<f32>()) as u64,
        ));
        for layout in [Layout::Interleaved, Layout::Concatenated] {
            let encoding = SinusoidalEncoding::new(size.n_embd)
                .unwrap()
                .with_layout(layout)
                .unwrap();
            group.bench_function(
                BenchmarkId::new(format!("table/{layout:?}"), size.name()),
                |b| {
                    b.iter(|| black_box(&encoding).table::<f32>(size.len).unwrap());
                },
            );
        }
        let (encoding, mut x) = (SinusoidalEncoding::new(size.n_embd).unwrap(), size.x());
        group.bench_function(BenchmarkId::new("forward_inplace", size.name()), |b| {
            b.iter(|| {
                black_box(&encoding)
                    .forward_inplace(black_box(&mut x), 0..size.len)
                    .unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("std", size.name()), |b| {
            b.iter(|| {
                Array2::from_shape_fn((size.len, size.n_embd), |(position, column)| {
                    let exponent = (column / 2 * 2) as f64 / size.n_embd as f64;
                    let angle = position as f64 / 10_000_f64.powf(exponent);
                    (if column % 2 == 0 {
                        angle.sin()
                    } else {
                        angle.cos()
                    }) as f32
                })
            });
        });
    }
}

fn table(size: &Size) -> PositionalEmbedding {
    PositionalEmbedding::from_weight(size.table()).unwrap()
}

criterion_group!(
    benches,
    forward,
    forward_into,
    forward_inplace,
    backward,
    sinusoidal
);
criterion_main!(benches);
