//! Which row of a table each token reads, once every check has passed: batches, runs and groups.
//!
//! The forward pass goes through the tokens in order and takes them in *runs* of neighbouring rows, which are one piece
//! of memory. The backward pass goes through the rows and takes the tokens of each as one *group*, in order of the
//! tokens, so that the order of every sum depends on the tokens alone.

use std::borrow::Cow;
use std::ops::Range;

/// The rows that the tokens of some sequences read.
pub(crate) struct Indices<'a> {
    list: List<'a>,
    batch: usize,
    /// Sequences of each batch entry: the axes between `batch` and `len` share its rows.
    sharing: usize,
    len: usize,
}

/// Rows by token: for all sequences alike, or sequence after sequence.
pub(crate) enum List<'a> {
    /// `start`, `start + 1`, …
    Range(usize),
    Shared(Cow<'a, [usize]>),
    PerSequence(Cow<'a, [usize]>),
}

/// Rows that must be there before they are read.
pub(crate) enum Needed<'a> {
    Range(Range<usize>),
    List(Cow<'a, [usize]>),
}

/// The tokens of each row that is read at all, rows and tokens ascending.
pub(crate) struct Groups {
    /// Each row, with the end of its tokens in `tokens`.
    ends: Vec<(usize, usize)>,
    tokens: Vec<usize>,
}

impl<'a> Indices<'a> {
    pub(crate) fn new(list: List<'a>, batch: usize, sharing: usize, len: usize) -> Self {
        Self {
            list,
            batch,
            sharing,
            len,
        }
    }

    /// All tokens as one sequence.
    pub(crate) fn flat(rows: Cow<'a, [usize]>) -> Self {
        let len = rows.len();
        Self::new(List::Shared(rows), 1, 1, len)
    }

    pub(crate) fn sequences(&self) -> usize {
        self.batch * self.sharing
    }

    /// The row of every token, sequence after sequence.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.sequences()).flat_map(move |sequence| {
            (0..self.len).map(move |t| match &self.list {
                List::Range(start) => start + t,
                List::Shared(rows) => rows[t],
                List::PerSequence(rows) => rows[sequence / self.sharing * self.len + t],
            })
        })
    }

    /// Calls `visit(token, row, count)` for each stretch of tokens that read neighbouring rows:
    /// tokens `token..token + count` read rows `row..row + count`. Tokens come in order and none is left out.
    pub(crate) fn for_each_run(&self, mut visit: impl FnMut(usize, usize, usize)) {
        if self.len == 0 {
            return;
        }
        for sequence in 0..self.sequences() {
            let mut token = sequence * self.len;
            let rows = match &self.list {
                List::Range(start) => {
                    visit(token, *start, self.len);
                    continue;
                }
                List::Shared(rows) => &rows[..],
                List::PerSequence(rows) => {
                    let first = sequence / self.sharing * self.len;
                    &rows[first..first + self.len]
                }
            };
            for run in rows.chunk_by(follows) {
                visit(token, run[0], run.len());
                token += run.len();
            }
        }
    }

    /// The first row, where every sequence reads the same neighbouring rows.
    pub(crate) fn contiguous(&self) -> Option<usize> {
        match &self.list {
            List::Range(start) => Some(*start),
            List::Shared(rows) if rows.is_sorted_by(follows) => rows.first().copied(),
            List::PerSequence(rows) if self.sequences() == 1 && rows.is_sorted_by(follows) => {
                rows.first().copied()
            }
            _ => None,
        }
    }

    /// The rows that must be there, and the same indices into just these rows.
    ///
    /// Positions that lie close together share one stretch of rows; of positions far apart each gets a row of its own.
    pub(crate) fn compact(self) -> (Needed<'a>, Self) {
        let Self {
            batch,
            sharing,
            len,
            ..
        } = self;
        let within = |list| Self {
            list,
            batch,
            sharing,
            len,
        };
        let (rows, per_sequence) = match self.list {
            List::Range(start) => {
                return (Needed::Range(start..start + len), within(List::Range(0)));
            }
            List::Shared(rows) => (rows, false),
            List::PerSequence(rows) => (rows, true),
        };
        let list = |rows| {
            if per_sequence {
                List::PerSequence(Cow::Owned(rows))
            } else {
                List::Shared(Cow::Owned(rows))
            }
        };
        let first = rows.iter().min().copied().unwrap_or(0);
        let end = rows
            .iter()
            .max()
            .map_or(Some(0), |last| last.checked_add(1));
        match end {
            Some(end) if end - first <= rows.len() => {
                let offsets = rows.iter().map(|row| row - first).collect();
                (Needed::Range(first..end), within(list(offsets)))
            }
            _ => {
                let own = (0..rows.len()).collect();
                (Needed::List(rows), within(list(own)))
            }
        }
    }

    /// The tokens of each row.
    pub(crate) fn groups(&self) -> Groups {
        let rows: Vec<usize> = self.iter().collect();
        let (Some(&first), Some(&last)) = (rows.iter().min(), rows.iter().max()) else {
            return Groups {
                ends: Vec::new(),
                tokens: Vec::new(),
            };
        };
        // Counting costs the span of the rows, sorting a logarithm of the tokens: neither knows the size of the table.
        if last - first < 4 * rows.len() {
            Groups::counted(&rows, first, last - first + 1)
        } else {
            Groups::sorted(&rows)
        }
    }
}

fn follows(&row: &usize, &next: &usize) -> bool {
    row.checked_add(1) == Some(next)
}

impl Groups {
    /// By a stable counting sort over rows `first..first + span`.
    fn counted(rows: &[usize], first: usize, span: usize) -> Self {
        let mut places = vec![0; span];
        for row in rows {
            places[row - first] += 1;
        }
        let mut ends = Vec::new();
        let mut end = 0;
        for (offset, place) in places.iter_mut().enumerate() {
            let count = std::mem::replace(place, end);
            if count > 0 {
                end += count;
                ends.push((first + offset, end));
            }
        }
        let mut tokens = vec![0; rows.len()];
        for (token, row) in rows.iter().enumerate() {
            let place = &mut places[row - first];
            tokens[*place] = token;
            *place += 1;
        }
        Self { ends, tokens }
    }

    /// By comparison; pairs (row, token) are all different, so that the order is the stable one.
    fn sorted(rows: &[usize]) -> Self {
        let mut pairs: Vec<(usize, usize)> = rows.iter().copied().zip(0..).collect();
        pairs.sort_unstable();
        let mut ends: Vec<(usize, usize)> = Vec::new();
        for (end, &(row, _)) in (1..).zip(&pairs) {
            match ends.last_mut() {
                Some(last) if last.0 == row => last.1 = end,
                _ => ends.push((row, end)),
            }
        }
        Self {
            ends,
            tokens: pairs.into_iter().map(|(_, token)| token).collect(),
        }
    }

    /// How many rows are read.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Leaves a row out, as if no token read it.
    pub(crate) fn without(mut self, left_out: Option<usize>) -> Self {
        let Some(index) =
            left_out.and_then(|row| self.ends.binary_search_by_key(&row, |&(row, _)| row).ok())
        else {
            return self;
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (_, end) = self.ends.remove(index);
        self.tokens.drain(start..end);
        for (_, later) in &mut self.ends[index..] {
            *later -= end - start;
        }
        self
    }

    /// Each row with its tokens.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[usize])> {
        let mut start = 0;
        self.ends
            .iter()
            .map(move |&(row, end)| (row, &self.tokens[std::mem::replace(&mut start, end)..end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(rows: &[usize], batch: usize, sharing: usize) -> Indices<'_> {
        Indices::new(
            List::Shared(Cow::Borrowed(rows)),
            batch,
            sharing,
            rows.len(),
        )
    }

    fn runs(indices: &Indices<'_>) -> Vec<(usize, usize, usize)> {
        let mut runs = Vec::new();
        indices.for_each_run(|token, row, count| runs.push((token, row, count)));
        runs
    }

    fn listed(groups: &Groups) -> Vec<(usize, Vec<usize>)> {
        groups
            .iter()
            .map(|(row, tokens)| (row, tokens.to_vec()))
            .collect()
    }

    #[test]
    fn runs_are_the_longest_stretches_of_neighbours() {
        assert_eq!(
            runs(&shared(&[4, 5, 6, 0, 2, 3], 1, 1)),
            [(0, 4, 3), (3, 0, 1), (4, 2, 2)]
        );
        assert_eq!(runs(&shared(&[1, 2], 1, 2)), [(0, 1, 2), (2, 1, 2)]);
        assert_eq!(
            runs(&shared(&[usize::MAX, 0], 1, 1)),
            [(0, usize::MAX, 1), (1, 0, 1)]
        );
        assert_eq!(
            runs(&Indices::new(List::Range(7), 2, 1, 3)),
            [(0, 7, 3), (3, 7, 3)]
        );
        assert_eq!(runs(&Indices::new(List::Range(7), 2, 1, 0)), []);
    }

    #[test]
    fn axes_between_batch_and_len_share_rows() {
        let rows = List::PerSequence(Cow::Owned(vec![0, 1, 5, 6]));
        let indices = Indices::new(rows, 2, 2, 2);
        assert_eq!(indices.iter().collect::<Vec<_>>(), [0, 1, 0, 1, 5, 6, 5, 6]);
        assert_eq!(runs(&indices), [(0, 0, 2), (2, 0, 2), (4, 5, 2), (6, 5, 2)]);
    }

    #[test]
    fn contiguous_only_where_every_sequence_reads_the_same_neighbours() {
        assert_eq!(shared(&[3, 4, 5], 2, 1).contiguous(), Some(3));
        assert_eq!(shared(&[3, 4, 4], 2, 1).contiguous(), None);
        let per_sequence = |batch| {
            Indices::new(
                List::PerSequence(Cow::Owned(vec![3, 4, 5, 6])),
                batch,
                1,
                4 / batch,
            )
        };
        assert_eq!(per_sequence(1).contiguous(), Some(3));
        assert_eq!(per_sequence(2).contiguous(), None);
    }

    #[test]
    fn both_ways_to_group_agree_and_keep_the_order_of_tokens() {
        let rows = [9, 2, 9, 4, 2, 9];
        let expected = [(2, vec![1, 4]), (4, vec![3]), (9, vec![0, 2, 5])];
        assert_eq!(listed(&Groups::counted(&rows, 2, 8)), expected);
        assert_eq!(listed(&Groups::sorted(&rows)), expected);
        assert_eq!(
            listed(&shared(&[0, usize::MAX, 0], 1, 1).groups()),
            [(0, vec![0, 2]), (usize::MAX, vec![1])]
        );
        assert_eq!(listed(&shared(&[], 3, 1).groups()), []);
    }

    #[test]
    fn a_row_left_out_takes_its_tokens_along() {
        let groups = || shared(&[9, 2, 9, 4, 2, 9], 1, 1).groups();
        assert_eq!(
            listed(&groups().without(Some(4))),
            [(2, vec![1, 4]), (9, vec![0, 2, 5])]
        );
        assert_eq!(
            listed(&groups().without(Some(2))),
            [(4, vec![3]), (9, vec![0, 2, 5])]
        );
        assert_eq!(listed(&groups().without(Some(3))), listed(&groups()));
        assert_eq!(listed(&shared(&[1, 1], 1, 1).groups().without(Some(1))), []);
    }
}
