package testenv

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

const (
	// Timeout bounds a wait for a fact that holds within moments. It leaves room
	// for a machine with much other work, so its end means that the fact is wrong.
	Timeout = 2 * time.Minute
	// pollInterval is the pause between two looks at a fact.
	pollInterval = 20 * time.Millisecond
)

// Eventually waits until holds returns true, and fails the test after Timeout.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Timeout, what, holds)
}

// Within is Eventually with a limit that is part of what the test asserts.
func Within(t testing.TB, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	if !poll(t, limit, holds) {
		t.Fatalf("not within %v: %s", limit, what)
	}
}

// EventuallyNone waits until missing returns "", and fails the test with its
// last answer after Timeout.
func EventuallyNone(t testing.TB, missing func() string) {
	t.Helper()
	var last string
	if !poll(t, Timeout, func() bool { last = missing(); return last == "" }) {
		t.Fatalf("not within %v: %s", Timeout, last)
	}
}

// promptTries is how often Promptly tries.
const promptTries = 5

// Promptly repeats try, which returns how long a thing took, until it took no longer than
// limit. It fails the test after five tries: a busy machine may hold up one of them, and
// proves nothing by it.
func Promptly(t testing.TB, limit time.Duration, what string, try func(n int) time.Duration) {
	t.Helper()
	var took time.Duration
	for n := range promptTries {
		if took = try(n); took <= limit {
			return
		}
	}
	t.Errorf("%s: took %v and more, want %v at most", what, took, limit)
}

// poll reports whether holds returned true in time. It asks at least once.
func poll(t testing.TB, limit time.Duration, holds func() bool) bool {
	t.Helper()
	for late := time.Now().Add(limit); !holds(); {
		if time.Now().After(late) {
			return false
		}
		select {
		case <-time.After(pollInterval):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
	return true
}

// Background runs f until stop is called or the test ends, and waits for its
// return. An error fails the test, except context.Canceled after stop.
func Background(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
