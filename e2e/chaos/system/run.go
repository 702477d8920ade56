package system

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Run plays scenarios, several at a time, and prints each result as it comes.
// No names means all of the form. The results are in the order of the table.
func Run(ctx context.Context, cfg Config, out io.Writer, names ...string) ([]*Result, error) {
	chosen := scenarios()
	chosen = slices.DeleteFunc(chosen, func(s scenario) bool {
		if len(names) > 0 {
			return !slices.Contains(names, s.name)
		}
		return cfg.Short && s.long
	})
	results, errs := make([]*Result, len(chosen)), make([]error, len(chosen))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	var printing sync.Mutex
	for i, s := range chosen {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if results[i], errs[i] = s.perform(ctx, cfg); errs[i] != nil {
				return
			}
			printing.Lock()
			defer printing.Unlock()
			results[i].Print(out)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", chosen[i].name, err)
		}
	}
	return results, nil
}

// atOnce is how many scenarios are played at a time; most of their time is
// waiting.
const atOnce = 5
