//! What the style sheet promises.

use std::collections::BTreeMap;

const STYLE: &str = include_str!("../assets/style.css");

/// The colours by name, in light and in dark.
fn palettes() -> [BTreeMap<&'static str, [f64; 3]>; 2] {
    let mut blocks = STYLE.split(":root {").skip(1).map(|rest| rest.split('}').next().unwrap());
    let palette = |block: &'static str| {
        let colours = block.split(';').filter_map(|line| line.trim().strip_prefix("--")?.split_once(": #"));
        let read = |hex: &str| {
            [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0)
        };
        colours.map(|(name, hex)| (name, read(hex))).collect()
    };
    [palette(blocks.next().unwrap()), palette(blocks.next().unwrap())]
}

/// The contrast ratio of WCAG 2.2.
fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let [red, green, blue] =
            colour.map(|it| if it <= 0.04045 { it / 12.92 } else { ((it + 0.055) / 1.055).powf(2.4) });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn texts_have_contrast_in_light_and_in_dark() {
    for palette in palettes() {
        for text in ["text", "soft", "link", "room", "nearly", "full"] {
            for behind in ["panel", "back"] {
                let ratio = contrast(palette[text], palette[behind]);
                assert!(ratio >= 4.5, "{text} on {behind}: {ratio:.2}");
            }
        }
        assert!(contrast(palette["text"], palette["warn-back"]) >= 4.5);
    }
}

#[test]
fn the_script_stays_small() {
    let script = include_str!("../assets/page.js");
    assert!(script.lines().count() <= 150);
    assert!(script.len() + STYLE.len() + include_str!("../assets/icon.svg").len() <= 250 * 1_024);
}
