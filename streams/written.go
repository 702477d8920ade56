package streams

import (
	"slices"
	"strings"
)

// Written are the streams that a role writes, Any for the queues of endpoints.
// It may ask NATS whether they take writes (CheckFilter). The admin writes all.
func Written(c Config, r Role) []string {
	if r == RoleAdmin {
		return append(Shared(c), Any)
	}
	writes := AccessOf(c, r, "*").Writes
	writesTo := func(subjects []string) bool {
		return slices.ContainsFunc(subjects, func(kept string) bool {
			return slices.ContainsFunc(writes, func(written string) bool { return overlap(kept, written) })
		})
	}
	var all []string
	for _, w := range AllWanted(c, nil) {
		if writesTo(w.Config.Subjects) {
			all = append(all, w.Config.Name)
		}
	}
	if writesTo([]string{AllJobs("*")}) {
		all = append(all, Any)
	}
	return all
}

// overlap reports whether some subject matches both of two filters.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
	return len(as) == len(bs)
}
