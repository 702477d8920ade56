package queue

import (
	"testing"
	"time"
)

// Deleted endpoints are asked for no more.
func TestCountsForgetEndpointsThatAreNotAskedFor(t *testing.T) {
	c, began := statsCache{of: map[string]*counted{}}, time.Now()
	c.entry("deleted", began)
	kept := c.entry("kept", began)
	for passed := time.Duration(0); passed <= 3*statsKept; passed += statsKept / 2 {
		if c.entry("kept", began.Add(passed)) != kept {
			t.Fatalf("after %s: got another entry, want that of before", passed)
		}
	}
	if got := len(c.of); got != 1 {
		t.Errorf("got %d entries, want 1", got)
	}
}
