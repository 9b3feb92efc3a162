// Command postroom works through lines with a command for each, on a broker in its
// own process: leases, retries with backoff, dead letters.
//
//	input ──▶ window ──▶ queue ──▶ workers ──▶ COMMAND ──exit 0──▶ acked
//	 lines      │          ▲                      │
//	            │          └──── other exit, ─────┤
//	            ▼               signal, timeout   │ exit 65, attempts spent
//	        rest file                             ▼
//	     (when interrupted)                   dead file ──▶ --from-dead
//
// See "postroom run --help", and "postroom demo" for what a broker does.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
