// Package report draws runs of the simulation: one self-contained HTML file for
// looking at a run, and a static SVG for a README.
//
//	simulation.Result ──fold──▶ picture ──▶ HTML: page.html + page.css + page.js + the picture as JSON
//	                               │
//	                               └──────▶ SVG: drawn here, for a README
//
//	result := spec.Run(7)
//	err := report.HTML(file, result, report.Options{Command: "postroom sim run --seeds 7"})
//
// The fold decides everything that is to be known: lanes, bars, marks, what every
// event changes in the ledger. Both drawings only put it on paper, so what is tested on
// the fold holds for both. Equal results give equal files, byte for byte.
//
// A page needs no network and no server: it opens from disk, and its own policy forbids
// it to load anything. It opens at the first finding, or where the address says:
// run.html#event=57&lanes=messages&scale=order. Opened with #selftest it tries itself and
// writes what it saw into its element of that name, as JSON; the tests here do that in a
// headless Chromium, where one is in PATH.
package report
