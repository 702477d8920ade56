package streams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// Upgrades run one after the other, each once, and the first that fails is
// named and ends it.
func TestUpgradesRunInOrder(t *testing.T) {
	errDisk := errors.New("disk full")
	tests := map[string]struct {
		from, to int
		fails    int
		want     []int
		err      string
	}{
		"from the beginning": {0, 3, 0, []int{1, 2, 3}, ""},
		"from between":       {2, 3, 0, []int{3}, ""},
		"nothing to do":      {3, 3, 0, nil, ""},
		"one fails":          {0, 3, 2, []int{1, 2}, "upgrade to schema 2: disk full"},
		"one is missing":     {3, 4, 0, nil, "upgrade to schema 4: no such step"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []int
			steps := map[int]upgrade{}
			for version := 1; version <= 3; version++ {
				steps[version] = func(context.Context, jetstream.JetStream, Config) error {
					got = append(got, version)
					if version == test.fails {
						return errDisk
					}
					return nil
				}
			}
			err := runUpgrades(t.Context(), nil, Config{}, test.from, test.to, steps)
			if !slices.Equal(got, test.want) || test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got %v, %v; want %v, %q", got, err, test.want, test.err)
			}
		})
	}
}

// Each version of Schema has its upgrade.
func TestEachSchemaHasItsUpgrade(t *testing.T) {
	for version := 1; version <= Schema; version++ {
		if upgrades()[version] == nil {
			t.Errorf("no upgrade to schema %d", version)
		}
	}
}
