package stats

import (
	"slices"
	"time"
)

const (
	// MaxGroups is how many causes a list of failures keeps apart; failures of
	// further causes are counted together as Other.
	MaxGroups = 100
	// maxLastJobs is how many jobs a group names.
	maxLastJobs = 5
)

// Other is the fingerprint of the failures beyond MaxGroups causes.
const Other = "other"

// Group is the failures of one cause.
type Group struct {
	Fingerprint string `json:"fingerprint"`
	// Cause is that of the latest of them.
	Cause string `json:"cause"`
	Count int64  `json:"count"`
	// First and Last are when attempts failed, in Unix milliseconds.
	First int64 `json:"first"`
	Last  int64 `json:"last"`
	// LastJobs are the jobs of the latest, the last one first, at most 5.
	LastJobs []string `json:"lastJobs"`
}

// Failures are groups by their causes.
type Failures []Group

// Add counts a failure, and returns the fingerprint that it is counted under.
func (f *Failures) Add(job, cause string, at time.Time) (fingerprint string) {
	fingerprint = Fingerprint(cause)
	f.merge(Group{Fingerprint: fingerprint, Cause: Cause(cause), Count: 1, First: at.UnixMilli(), Last: at.UnixMilli(), LastJobs: []string{job}}, MaxGroups)
	if f.find(fingerprint) < 0 {
		return Other
	}
	return fingerprint
}

// Merge adds the failures of another time.
func (f *Failures) Merge(other Failures) {
	for _, g := range other {
		f.merge(g, len(*f)+1)
	}
}

func (f *Failures) find(fingerprint string) int {
	return slices.IndexFunc(*f, func(g Group) bool { return g.Fingerprint == fingerprint })
}

// merge adds a group, as Other if it would be one more than most.
func (f *Failures) merge(g Group, most int) {
	i := f.find(g.Fingerprint)
	if i < 0 && len(*f) >= most {
		g.Fingerprint, g.Cause = Other, "more causes than are kept apart"
		i = f.find(Other)
	}
	if i < 0 {
		g.LastJobs = slices.Clone(g.LastJobs)
		*f = append(*f, g)
		return
	}
	have := &(*f)[i]
	have.Count += g.Count
	have.First = min(have.First, g.First)
	if g.Last >= have.Last {
		have.Cause, have.Last = g.Cause, g.Last
		have.LastJobs = joined(g.LastJobs, have.LastJobs)
	} else {
		have.LastJobs = joined(have.LastJobs, g.LastJobs)
	}
}

// joined are the first jobs of both lists, each once.
func joined(first, then []string) []string {
	all := slices.Clone(first)
	for _, id := range then {
		if !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	return all[:min(len(all), maxLastJobs)]
}
