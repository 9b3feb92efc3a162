// Package report draws runs of the simulation: one self-contained HTML file for
// looking at a run, and a static SVG for a README.
//
//	simulation.Result ──fold──▶ picture ──▶ HTML: page.html + page.css + page.js + the picture as JSON
//	                               │
//	                               └──────▶ SVG: drawn here, for a README
//
// The fold decides everything that is to be known: lanes, bars, marks, what every
// event changes in the ledger. Both drawings only put it on paper, so what is tested on
// the fold holds for both. Equal results give equal files, byte for byte.
//
// A page needs no network and no server: it opens from disk, and its own policy forbids
// it to load anything. The page opened with #selftest checks itself and writes what it
// found into its element of that name, as JSON.
package report
