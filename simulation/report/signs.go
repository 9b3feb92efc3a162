package report

// sign is how a mark is drawn.
type sign struct {
	// Shape names it, and is its class in the style sheet.
	Shape string `json:"shape"`
	// Path is drawn around its middle, within 12 units each way.
	Path string `json:"path"`
	// IsLine: the path is a line and no area.
	IsLine bool `json:"line,omitempty"`
	// IsMinor: it gives way where there is no room.
	IsMinor bool `json:"minor,omitempty"`
	// Meaning is for the legend.
	Meaning string `json:"meaning"`
}

// signs are all there are, in the order of the legend.
var signs = []sign{
	{Shape: "accepted", Path: "M2.5,0A2.5,2.5 0 1 1 -2.5,0A2.5,2.5 0 1 1 2.5,0Z", IsLine: true, IsMinor: true, Meaning: "put accepted"},
	{Shape: "refused", Path: "M-3.5,0H3.5", IsLine: true, IsMinor: true, Meaning: "put refused, or message dropped"},
	{Shape: "effect", Path: "M2.5,0A2.5,2.5 0 1 1 -2.5,0A2.5,2.5 0 1 1 2.5,0Z", IsMinor: true, Meaning: "effect outside"},
	{Shape: "fault", Path: "M1,-6L-4,1H0L-1,6L4,-1H0Z", Meaning: "fault strikes"},
	{Shape: "crash", Path: "M-4,-4L4,4M-4,4L4,-4", IsLine: true, Meaning: "crash"},
	{Shape: "restart", Path: "M0,-5L5,4H-5Z", Meaning: "restart"},
	{Shape: "hang", Path: "M-4,-5H4L-4,5H4Z", Meaning: "hangs"},
	{Shape: "stale", Path: "M0,-5.5L5.5,0L0,5.5L-5.5,0Z", Meaning: "stale ack or nack"},
	{Shape: "backoff", Path: "M-3.5,-4L4,0L-3.5,4Z", IsLine: true, Meaning: "backoff begins"},
	{Shape: "dead", Path: "M-4,5V-1A4,4 0 0 1 4,-1V5Z", Meaning: "dead letter"},
	{Shape: "redrive", Path: "M0,-5L4.5,0H1.5V5H-1.5V0H-4.5Z", Meaning: "redriven"},
	{Shape: "calm", Path: "M-5,-1.5Q-2.5,-5 0,-1.5T5,-1.5M-5,3Q-2.5,-0.5 0,3T5,3", IsLine: true, Meaning: "no more faults"},
	{Shape: "violation", Path: "M-3.5,6V-6H5L2,-3L5,0H-3.5", Meaning: "violation"},
}

// endings explains the colours of the bars, in the order of the legend.
var endings = []struct {
	Class   ending
	Meaning string
}{
	{byAck, "lease, acked"},
	{byFailure, "nacked or rejected"},
	{byExpiry, "ran out"},
	{byTaking, "taken back with its worker"},
	{byRelease, "released"},
	{byDrop, "dropped with its queue"},
	{stillRuns, "still runs at the end"},
}
