//! What a misspelt word may have meant.

/// The known word fewest edits away, if it is close enough to be a slip.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|k| {
            // Leaving out a prefix ("fig18" for "libception-fig18") is the commonest slip of all.
            let tail = k.rsplit_once('-').map_or(k, |(_, tail)| tail);
            (edits(word, k).min(edits(word, tail)), k)
        })
        .filter(|(distance, k)| *distance <= (k.len() / 3).max(2))
        .min()
        .map(|(_, k)| k)
}

/// Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
