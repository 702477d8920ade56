package barrier_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"flightline/shared/bus/barrier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

func TestWhoComesDuringARunSharesTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := barrier.NewGroup()
		goOn := make(chan struct{})
		var runs atomic.Int32
		var callers errgroup.Group
		call := func() {
			callers.Go(func() error {
				return g.Do(t.Context(), func(context.Context) error {
					runs.Add(1)
					<-goOn
					return nil
				})
			})
		}
		call()
		synctest.Wait() // it is in its run now
		for range 10 {
			call()
		}
		synctest.Wait()
		if got := runs.Load(); got != 1 {
			t.Errorf("during a run: got %d runs, want 1", got)
		}
		goOn <- struct{}{}
		synctest.Wait()
		if got := runs.Load(); got != 2 {
			t.Errorf("after it: got %d runs, want one more for all the others", got)
		}
		close(goOn)
		if err := callers.Wait(); err != nil {
			t.Error(err)
		}
		if got := runs.Load(); got != 2 {
			t.Errorf("at the end: got %d runs, want 2", got)
		}
	})
}

func TestAnErrorReachesAllOfItsRunAndNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := barrier.NewGroup()
		goOn := make(chan struct{})
		first := make(chan error, 1)
		go func() {
			first <- g.Do(t.Context(), func(context.Context) error { <-goOn; return nil })
		}()
		synctest.Wait()
		others := make(chan error, 10)
		for range cap(others) {
			go func() {
				others <- g.Do(t.Context(), func(context.Context) error { return errBroken })
			}()
		}
		synctest.Wait()
		close(goOn)
		if err := <-first; err != nil {
			t.Errorf("the first: got %v, want nil", err)
		}
		for range cap(others) {
			if err := <-others; !errors.Is(err, errBroken) {
				t.Errorf("another: got %v, want broken", err)
			}
		}
		if err := g.Do(t.Context(), func(context.Context) error { return nil }); err != nil {
			t.Errorf("later: got %v, want nil", err)
		}
	})
}

func TestACallerWhoGivesUpSpoilsNothingForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := barrier.NewGroup()
		work := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.Context().Done():
				return nil
			}
		}
		busy, release := context.WithCancel(t.Context())
		go func() { _ = g.Do(busy, work) }()
		synctest.Wait()

		// Two wait for the same run; the one who is to do it is impatient.
		impatient, giveUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() { gone <- g.Do(impatient, work) }()
		synctest.Wait()
		release()
		synctest.Wait() // impatient works
		patient := make(chan error, 1)
		go func() { patient <- g.Do(t.Context(), func(context.Context) error { return nil }) }()
		waiting, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- g.Do(waiting, work) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("while waiting: got %v, want context.Canceled", err)
		}
		giveUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("while working: got %v, want context.Canceled", err)
		}
		if err := <-patient; err != nil {
			t.Errorf("the patient one: got %v, want nil", err)
		}
	})
}

func TestARunThatItsCallerGaveUpIsRepeatedForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := barrier.NewGroup()
		goOn := make(chan struct{})
		go func() { _ = g.Do(t.Context(), func(context.Context) error { <-goOn; return nil }) }()
		synctest.Wait()
		var repeated atomic.Int32
		results := make(chan error, 3)
		for range cap(results) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				results <- g.Do(ctx, func(context.Context) error {
					if repeated.Add(1) == 1 {
						cancel()
						return ctx.Err()
					}
					return nil
				})
			}()
		}
		synctest.Wait()
		close(goOn)
		failed := 0
		for range cap(results) {
			if err := <-results; err != nil {
				failed++
			}
		}
		if failed != 1 || repeated.Load() < 2 {
			t.Errorf("got %d failed of %d runs, want only the one who gave up, and a run after its", failed, repeated.Load())
		}
	})
}
