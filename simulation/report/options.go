package report

// Options says what a page holds besides the run itself.
type Options struct {
	// Title stands above the page. Empty: the name of the spec and the seed.
	Title string
	// Command is what makes the run again, for the page's copy button: a line for a
	// shell. Empty: the page has no such button.
	Command string
}
