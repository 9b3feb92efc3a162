package worker

// OutboxStatements are what a dispatcher sends to the database for a batch of n, for the
// bare loop that it is compared with.
func OutboxStatements(s *SQL, n int) (claim, mark, lock string) {
	return s.text.claim, s.dialect.in(s.text.sent, 2, n), s.text.lockClaim
}
