// Package supervisor decides what becomes of an actor that failed, and does it.
//
// The deciding is policy.go. It is pure: the instant of the failure and a drawn
// number go in, a [Decision] comes out. The doing is in the package's other files.
//
//	failure at now ──► Policy.Decide(history, now, draw) ──► Decision
//	                        │                                   ├─ Restart, After d
//	                        │                                   └─ stop
//	                        ▼
//	   count = count · ½^(calm / HalfLife) + 1
//
//	   now          now + After                    next failure
//	    ├── waiting ─────┼── running: this is calm ──────┤
//
// Only running counts as calm. If the waiting did too, the policy's own longer and
// longer delays would forgive the very failures that cause them, and an actor that
// fails at each start would be restarted for ever.
package supervisor
