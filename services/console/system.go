package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"flightline/shared/client"
)

type systemData struct {
	Version string
	// System is nil for a key that may not see it. An open page asks for it every
	// wholeInterval.
	System *client.System
	asked  time.Time
	// Stream is the text that names of streams are narrowed to.
	Stream string
	Keys   []client.Key
	// SeesKeys: the key may manage keys.
	SeesKeys bool
	Versions []versionCount
	Self     string // the id of the key that is signed in
	Filter   string
}

// versionCount is how many workers run a version.
type versionCount struct {
	Version string
	Workers int
}

func loadSystem(v *visit) (any, error) {
	d := &systemData{Version: v.s.cfg.Version, Self: v.self.ID, Filter: v.query.Get("q"), Stream: v.query.Get("stream"), SeesKeys: v.May("control", "")}
	if d.SeesKeys {
		if last := lastLoad[systemData](v); time.Since(last.asked) < wholeInterval {
			d.System, d.asked = last.System, last.asked
		} else {
			var err error
			d.asked = time.Now()
			if d.System, err = v.control.System(v.ctx, d.Stream); err != nil {
				return nil, err
			}
		}
		keys, err := v.control.Keys().List(v.ctx)
		if err != nil {
			return nil, err
		}
		wanted := strings.ToLower(d.Filter)
		for _, k := range keys {
			if strings.Contains(strings.ToLower(k.Name+"\n"+k.ID+"\n"+k.Last4+"\n"+strings.Join(k.Scopes, "\n")), wanted) {
				d.Keys = append(d.Keys, k)
			}
		}
		slices.SortFunc(d.Keys, func(a, b client.Key) int { return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID)) })
	}
	if !v.mayReadSome() {
		return d, nil
	}
	const most = 1000
	got, err := v.api.Workers().Living(v.ctx, client.LivingQuery{Limit: most})
	if err != nil {
		return nil, err
	}
	d.Versions = versionsOf(got.Workers)
	return d, nil
}

// versionsOf counts workers by the version of their program, the most frequent first.
func versionsOf(workers []client.LivingWorker) []versionCount {
	counts := map[string]int{}
	for _, w := range workers {
		counts[w.Host.Version]++
	}
	var list []versionCount
	for version, n := range counts {
		list = append(list, versionCount{version, n})
	}
	slices.SortFunc(list, func(a, b versionCount) int {
		return cmp.Or(cmp.Compare(b.Workers, a.Workers), strings.Compare(a.Version, b.Version))
	})
	return list
}

// createKey makes a key and shows it once.
func createKey(v *visit) (string, error) {
	spec := client.KeySpec{Name: strings.TrimSpace(v.form.Get("name")), Scopes: strings.FieldsFunc(v.form.Get("scopes"), func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })}
	made, err := v.control.Keys().Create(v.ctx, spec)
	if err != nil {
		return "", err
	}
	v.shows(screen{title: "The new key", nav: "system", template: "key-made"}, made)
	return "", nil
}

func loadRevoke(v *visit) (any, error) {
	if err := mayControl(v, "keys"); err != nil {
		return nil, err
	}
	keys, err := v.control.Keys().List(v.ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(keys, func(k client.Key) bool { return k.ID == v.param("id") })
	if at < 0 {
		return nil, &pageError{status: http.StatusNotFound, text: "There is no such key."}
	}
	return &keys[at], nil
}

func revokeKey(v *visit) (string, error) {
	if v.param("id") == v.self.ID {
		return "", &pageError{status: http.StatusConflict, text: "You are signed in with this key. Sign in with another one to revoke it."}
	}
	if err := v.control.Keys().Revoke(v.ctx, v.param("id")); err != nil {
		return "", err
	}
	v.notice("The key is revoked, everywhere within seconds.")
	return Root + "/system", nil
}
