package actors

import "sync"

// Shelf lends the room for what one command carries, and takes it back to lend it again:
// 64 puts are 6 KiB that nobody needs any more when the queue has answered. The zero value
// is an empty one. Its methods may be called from any goroutine.
type Shelf[T any] struct{ free sync.Pool }

// shelfKept bounds the room that is kept.
const shelfKept = 1024

// Borrow lends room for n, all zero.
func (s *Shelf[T]) Borrow(n int) *[]T {
	if room, ok := s.free.Get().(*[]T); ok && cap(*room) >= n {
		*room = (*room)[:n]
		return room
	}
	room := make([]T, n)
	return &room
}

// Return takes back what Borrow has lent, and only when the command was answered: a caller
// that waits no longer leaves it to the actor, and to the garbage collector.
func (s *Shelf[T]) Return(room *[]T) {
	if clear(*room); cap(*room) <= shelfKept {
		s.free.Put(room)
	}
}
