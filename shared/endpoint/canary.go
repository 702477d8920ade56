package endpoint

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// rolloutReplace is the rollout that replaces workers of the former version one by one.
// The other one is a canary, "canary:10%": that share of the workers tries a new version
// first.
const rolloutReplace = "replace"

// canaryPrefix begins the text of a canary, maxCanaryPercent is its greatest share.
const (
	canaryPrefix     = "canary:"
	maxCanaryPercent = 99
)

// ParseRollout reads a rollout: the share of a canary in percent, 0 for "replace"
// and "". It returns a *FieldError.
func ParseRollout(text string) (percent int, err error) {
	if text == "" || text == rolloutReplace {
		return 0, nil
	}
	digits, canary := strings.CutPrefix(text, canaryPrefix)
	digits, whole := strings.CutSuffix(digits, "%")
	percent, err = strconv.Atoi(digits)
	if !canary || !whole || err != nil || percent < 1 || percent > maxCanaryPercent {
		return 0, &FieldError{"rollout", fmt.Sprintf("must be %q or %q with 1 to %d in place of 10, got %.50q", rolloutReplace, canaryPrefix+"10%", maxCanaryPercent, text)}
	}
	return percent, nil
}

// RolloutText is what ParseRollout reads.
func RolloutText(percent int) string {
	if percent == 0 {
		return rolloutReplace
	}
	return fmt.Sprintf("%s%d%%", canaryPrefix, percent)
}

// The states of a canary.
const (
	CanaryRunning    = "running"
	CanaryPromoted   = "promoted"
	CanaryRolledBack = "rolled_back"
)

// Canary is the last trial of a new version beside the one before. The zero value means
// that there was none.
type Canary struct {
	State string `json:"state,omitempty"`
	// Version is the release that is tried, FormerVersion that of the other workers.
	Version       int `json:"version,omitempty"`
	FormerVersion int `json:"formerVersion,omitempty"`
	// Former is what the other workers are started from while the trial lasts.
	Former Run `json:"former,omitzero"`
	// Began is when the first worker of the new version was seen, Ended when the trial was
	// over; Text says why.
	Began time.Time `json:"began,omitzero"`
	Ended time.Time `json:"ended,omitzero"`
	Text  string    `json:"text,omitempty"`
}

// Lasts reports whether the new version is being tried.
func (c Canary) Lasts() bool { return c.State == CanaryRunning }

// Former is the endpoint as workers of the former version are started, while a canary
// lasts.
func (e Endpoint) Former() Endpoint {
	now := e.Fleet
	e.Fleet, e.Env, e.Release = e.Canary.Former.Fleet, e.Canary.Former.Env, e.Canary.FormerVersion
	e.Fleet.Priority, e.Fleet.MinHold, e.Fleet.MaxSwapWait = now.Priority, now.MinHold, now.MaxSwapWait
	return e
}

// Promote ends the trial in favor of the new version.
func (e Endpoint) Promote(why string, now time.Time) Endpoint {
	e.Canary.State, e.Canary.Ended, e.Canary.Text, e.Canary.Former = CanaryPromoted, now, why, Run{}
	return e
}

// RollBack ends the trial in favor of the former version: the endpoint is again what its
// workers were started from before.
func (e Endpoint) RollBack(why string, now time.Time) Endpoint {
	e = e.Former()
	e.Canary.State, e.Canary.Ended, e.Canary.Text, e.Canary.Former = CanaryRolledBack, now, why, Run{}
	return e
}

// withCanary is e, a new release of old, with the trial that begins or ends by that. A
// trial that lasts goes on with the newer version beside the same former one.
func (e Endpoint) withCanary(old Endpoint) Endpoint {
	former, version := old.Run(), old.ReleaseVersion()
	if old.Canary.Lasts() {
		former, version = old.Canary.Former, old.Canary.FormerVersion
	}
	switch {
	case old.Canary.Lasts() && e.Run().Equal(former): // rolled back, or taken back by request
		e.Release = version
		if e.Canary.Lasts() {
			e.Canary = Canary{}
		}
	case e.CanaryPercent == 0 || e.Fleet.External() || former.Fleet.External():
		e.Canary = Canary{}
	default:
		e.Canary = Canary{State: CanaryRunning, Version: e.Release, FormerVersion: version, Former: former}
	}
	return e
}
