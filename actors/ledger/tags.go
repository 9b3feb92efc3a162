package ledger

import "slices"

// tags finds the leased message of a delivery tag: pages of 64 tags, by number.
// A page goes when its last lease has ended, so one lease that lasts for days pins
// 64 places and not every tag since; a ring by tag would grow without bound.
type tags struct {
	pages map[uint64]*page
	// recent is the page used last: hand-overs and prompt settles of one batch are
	// on it, and need no map.
	recent   *page
	recentNo uint64
}

const (
	pageTags      = 64
	pageSparesMax = 16
)

type page struct {
	live  int
	entry [pageTags]*entry
}

func (t *tags) page(no uint64) *page {
	if t.recent != nil && t.recentNo == no {
		return t.recent
	}
	p := t.pages[no]
	if p != nil {
		t.recent, t.recentNo = p, no
	}
	return p
}

// get returns the message leased under tag, or nil.
func (t *tags) get(tag uint64) *entry {
	if p := t.page(tag / pageTags); p != nil {
		return p.entry[tag%pageTags]
	}
	return nil
}

// issue gives e the next tag, which is this; spare are pages to be used again.
func (t *tags) issue(tag uint64, e *entry, spare *[]*page) {
	no := tag / pageTags
	p := t.page(no)
	if p == nil {
		if n := len(*spare); n > 0 {
			p = (*spare)[n-1]
			*spare = (*spare)[:n-1]
		} else {
			p = new(page)
		}
		if t.pages == nil {
			t.pages = make(map[uint64]*page)
		}
		t.pages[no] = p
		t.recent, t.recentNo = p, no
		// The page before was kept while it was the current one.
		if before := t.pages[no-1]; before != nil && before.live == 0 {
			t.drop(no-1, before, spare)
		}
	}
	p.entry[tag%pageTags] = e
	p.live++
}

// end forgets a tag whose lease is over; last is the one given out last.
func (t *tags) end(tag, last uint64, spare *[]*page) {
	no := tag / pageTags
	p := t.page(no)
	p.entry[tag%pageTags] = nil
	p.live--
	if p.live == 0 && no != last/pageTags {
		t.drop(no, p, spare)
	}
}

func (t *tags) drop(no uint64, p *page, spare *[]*page) {
	delete(t.pages, no)
	if t.recent == p {
		t.recent = nil
	}
	if len(*spare) < pageSparesMax {
		*spare = append(*spare, p)
	}
}

// all returns every leased message in tag order.
func (t *tags) all() []*entry { return t.appendTo(nil) }

// appendTo is all, behind what is in out.
func (t *tags) appendTo(out []*entry) []*entry {
	numbers := make([]uint64, 0, 8)
	for no := range t.pages {
		numbers = append(numbers, no)
	}
	slices.Sort(numbers)
	for _, no := range numbers {
		p, left := t.pages[no], t.pages[no].live
		for i := 0; left > 0 && i < pageTags; i++ {
			if e := p.entry[i]; e != nil {
				out, left = append(out, e), left-1
			}
		}
	}
	return out
}

// trim gives the current page, that of the last tag, back when it is empty.
func (t *tags) trim(last uint64) {
	if p := t.pages[last/pageTags]; p != nil && p.live == 0 {
		delete(t.pages, last/pageTags)
		t.recent = nil
	}
	if len(t.pages) == 0 {
		t.pages, t.recent = nil, nil
		return
	}
	// A Go map never shrinks; after a spike of leases it must be made anew.
	pages := make(map[uint64]*page, len(t.pages))
	for no, p := range t.pages {
		pages[no] = p
	}
	t.pages = pages
}
