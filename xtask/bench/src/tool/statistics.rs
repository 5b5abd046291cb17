//! Percentiles, and comparisons that are made inside of a round: both sides then ran within seconds of each other.

/// The percentile of sorted samples: the smallest sample that so many percent of the samples do not exceed.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).map(|value| f64::from(*value))
}

/// The median; of an even number of values, the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// The median of the ratios of the rounds in which both values are there and the second is not zero.
pub(crate) fn median_ratio(rounds: impl IntoIterator<Item = (Option<f64>, Option<f64>)>) -> Option<f64> {
    median(rounds.into_iter().filter_map(|(value, base)| Some(value? / base.filter(|base| *base > 0.0)?)))
}

/// The median of the differences of the rounds in which both values are there.
pub(crate) fn median_difference(rounds: impl IntoIterator<Item = (Option<f64>, Option<f64>)>) -> Option<f64> {
    median(rounds.into_iter().filter_map(|(value, base)| Some(value? - base?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&samples, 50), Some(100.0));
        assert_eq!(percentile(&samples, 99), Some(198.0));
        assert_eq!(percentile(&samples[..3], 50), Some(2.0));
        assert_eq!(percentile(&samples[..1], 99), Some(1.0));
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn the_median_of_an_even_number_of_values_is_a_mean() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median([f64::NAN, 7.0]), Some(7.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn a_ratio_is_taken_inside_of_a_round() {
        // The machine was three times slower in the second round, and the third round lacks the base.
        let rounds = [(Some(20.0), Some(10.0)), (Some(6.0), Some(3.0)), (Some(90.0), None), (None, Some(1.0))];
        assert_eq!(median_ratio(rounds), Some(2.0));
        assert_eq!(median_difference(rounds), Some(6.5));
        assert_eq!(median_ratio([(Some(1.0), Some(0.0))]), None);
        assert_eq!(median_ratio([(None, None)]), None);
    }
}
