package streams_test

import (
	"strings"
	"testing"

	"flightline/shared/testenv"
	"flightline/streams"
)

// F15: what is written to a stream stays in memory for ten seconds, if the block is read
// while it is written, as it is for the check of a subject's last sequence. Not parallel,
// since it measures the memory of the process.
func TestF15WhatIsReadWhileItIsWrittenStaysInMemory(t *testing.T) {
	const count, size = 64, 512 << 10
	body := strings.Repeat("x", size)
	for checks, stays := range map[bool]bool{false: false, true: true} {
		b := start(t)
		before := testenv.MemoryInUse()
		subject := streams.PayloadSubject(0, b.e.ID, "job", 1, 0, streams.In, "token")
		var last uint64
		for range count {
			m := message(subject, body)
			if checks {
				m = after(last, subject, body)
			}
			last = publish(t.Context(), t, b.JS, m)
		}
		if left := testenv.MemoryInUse() - before; left > count*size/2 != stays {
			t.Errorf("with the check %t, %d MB of %d are in memory; if it is little with both, bus.Append may go", checks, left>>20, count*size>>20)
		}
	}
}
