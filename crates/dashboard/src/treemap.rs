//! Shares as areas: a squarified treemap (Bruls, Huizing, van Wijk 2000).

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// One rectangle for each of the values, which are positive and begin with the largest, within `whole`.
pub(crate) fn treemap(values: &[f64], whole: Area) -> Vec<Area> {
    let sum: f64 = values.iter().sum();
    if sum <= 0.0 {
        return Vec::new();
    }
    let scale = whole.width * whole.height / sum;
    let mut rest: Vec<f64> = values.iter().map(|value| value * scale).collect();
    let (mut free, mut areas) = (whole, Vec::with_capacity(values.len()));
    while !rest.is_empty() {
        let side = free.width.min(free.height);
        let mut taken = 1;
        while taken < rest.len() && worst(&rest, taken + 1, side) <= worst(&rest, taken, side) {
            taken += 1;
        }
        let row: Vec<f64> = rest.drain(..taken).collect();
        free = place(&row, free, &mut areas);
    }
    areas
}

/// The worst ratio of sides when so many of the first areas are put in one row along `side`.
fn worst(areas: &[f64], many: usize, side: f64) -> f64 {
    let row = areas.iter().take(many);
    let sum: f64 = row.clone().sum();
    row.map(|area| {
        let (thick, long) = (sum / side, area * side / sum);
        (thick / long).max(long / thick)
    })
    .fold(0.0, f64::max)
}

/// Puts a row along the shorter side; returns what is free then.
fn place(row: &[f64], free: Area, areas: &mut Vec<Area>) -> Area {
    let sum: f64 = row.iter().sum();
    let is_wide = free.width >= free.height;
    let thick = sum / if is_wide { free.height } else { free.width };
    let mut at = if is_wide { free.y } else { free.x };
    for area in row {
        let long = area / thick;
        areas.push(match is_wide {
            true => Area { x: free.x, y: at, width: thick, height: long },
            false => Area { x: at, y: free.y, width: long, height: thick },
        });
        at += long;
    }
    match is_wide {
        true => Area { x: free.x + thick, width: (free.width - thick).max(0.0), ..free },
        false => Area { y: free.y + thick, height: (free.height - thick).max(0.0), ..free },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Area = Area { x: 0.0, y: 0.0, width: 600.0, height: 200.0 };

    #[test]
    fn areas_are_in_proportion_and_stay_inside() {
        let values = [6.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0];
        let areas = treemap(&values, WHOLE);
        assert_eq!(areas.len(), values.len());
        for (value, area) in values.iter().zip(&areas) {
            assert!((area.width * area.height - value * 5_000.0).abs() < 1e-6, "{area:?}");
            assert!(area.x >= 0.0 && area.x + area.width <= 600.0 + 1e-6, "{area:?}");
            assert!(area.y >= 0.0 && area.y + area.height <= 200.0 + 1e-6, "{area:?}");
        }
    }

    #[test]
    fn nothing_has_no_area() {
        assert!(treemap(&[], WHOLE).is_empty() && treemap(&[0.0, 0.0], WHOLE).is_empty());
    }
}
