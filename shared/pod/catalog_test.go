package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const prices = `{
 "gpuTypes": {"L4": {"securePrice": 0.1, "communityPrice": 0.05, "secureSpotPrice": 0.04, "communitySpotPrice": 0.02}},
 "cpuTypes": {"EPYC": {"vcpuPrice": 0.1}},
 "machines": {"m1": {"dataCenterId": "A"}, "host": {"dataCenterId": "B", "secureCloud": false}, "owned": {"costPerHr": 2}},
 "savingsPlans": [{"id": "s1", "podId": "saver", "costPerHr": 0.03, "startTime": "2026-01-01T00:00:00Z", "endTime": "2027-01-01T00:00:00Z"},
  {"id": "s2", "gpuTypeId": "L4", "costPerHr": 0.01, "startTime": "2027-01-01T00:00:00Z", "endTime": "2028-01-01T00:00:00Z"}]}`

func TestCost(t *testing.T) {
	c, err := ParseCatalog([]byte(prices))
	if err != nil {
		t.Fatal(err)
	}
	l4 := Machine{GPUs: []GPU{{Name: "L4"}, {Name: "L4"}, {Name: "L4"}}}
	community := Machine{Hostname: "host", GPUs: l4.GPUs}
	docker := func(gpus int) Spec { return Spec{Image: "i", GPUs: gpus} }
	for name, tc := range map[string]struct {
		catalog *Catalog
		pod     Pod
		year    int
		want    string
	}{
		"no catalogue":            {nil, Pod{Machine: l4}, 2026, "- -"},
		"nothing known":           {c, Pod{}, 2026, "- -"},
		"three of 0.1":            {c, Pod{Machine: l4, MachineID: "m1"}, 2026, "0.3 0.3"},
		"two of three":            {c, Pod{Driver: Docker, Spec: docker(2), Machine: l4}, 2026, "0.2 0.2"},
		"spot":                    {c, Pod{Interruptible: true, Driver: Docker, Spec: docker(1), Machine: l4}, 2026, "0.04 0.04"},
		"community":               {c, Pod{Driver: Docker, Spec: docker(1), Machine: community}, 2026, "0.05 0.05"},
		"community spot":          {c, Pod{Interruptible: true, Driver: Docker, Spec: docker(1), Machine: community}, 2026, "0.02 0.02"},
		"a container without":     {c, Pod{Driver: Docker, Spec: docker(0), Machine: l4}, 2026, "- -"},
		"three virtual CPUs":      {c, Pod{Driver: Docker, Spec: Spec{VCPUs: 3}, Machine: Machine{CPU: CPU{Model: "EPYC"}, VCPUs: 64}}, 2026, "0.3 0.3"},
		"the owner's machine":     {c, Pod{MachineID: "owned"}, 2026, "2 2"},
		"a pod on that machine":   {c, Pod{MachineID: "owned", Driver: Process}, 2026, "- -"},
		"a plan for the pod":      {c, Pod{ID: "saver", Driver: Docker, Spec: docker(2), Machine: l4}, 2026, "0.2 0.06"},
		"a plan for the kind":     {c, Pod{Driver: Docker, Spec: docker(2), Machine: l4}, 2027, "0.2 0.02"},
		"a plan that is over":     {c, Pod{ID: "saver", Driver: Docker, Spec: docker(1), Machine: l4}, 2028, "0.1 0.1"},
		"a plan without a price":  {c, Pod{ID: "saver"}, 2026, "- 0.03"},
		"a GPU that is not known": {c, Pod{Driver: Docker, Spec: docker(1)}, 2026, "- -"},
	} {
		full, adjusted := tc.catalog.Cost(tc.pod, time.Date(tc.year, 6, 1, 0, 0, 0, 0, time.UTC))
		if got := shown(full) + " " + shown(adjusted); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
	if place, ok := c.Place(Pod{MachineID: "m1", Machine: Machine{Hostname: "host"}}); !ok || place.DataCenterID != "A" {
		t.Errorf("got %+v, want that of the id", place)
	}
}

func shown(n *float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func TestBadCatalogsNameTheField(t *testing.T) {
	plan := func(rest string) string {
		return `{"savingsPlans":[{"id":"s","podId":"p","startTime":"2026-01-01T00:00:00Z","endTime":"2027-01-01T00:00:00Z"` + rest + `}]}`
	}
	for text, want := range map[string]string{
		``: "the catalogue is not valid JSON", `null`: "one JSON object", `[]`: "the catalogue must be an object", `{} {}`: "one JSON object", `{"gpus":{}}`: "gpus is not a known field",
		`{"gpuTypes":{"L4":{"securePrice":"1"}}}`:            "gpuTypes.L4.securePrice must be a number",
		`{"machines":"x"}`:                                   "machines must be an object",
		plan(`,"costPerHr":[]`):                              "savingsPlans[0].costPerHr must be a number",
		`{"savingsPlans":[{"startTime":"soon"}]}`:            "an instant must be like 2026-",
		`{"savingsPlans":[{"startTime":5}]}`:                 "an instant must be like 2026-",
		`{"gpuTypes":{"L4":{"oneWeekPrice":-1}}}`:            "gpuTypes.L4.oneWeekPrice must not be negative",
		`{"cpuTypes":{"E":{"vcpuPrice":-1}}}`:                "cpuTypes.E.vcpuPrice must not be negative",
		`{"machines":{"m":{"costPerHr":-1}}}`:                "machines.m.costPerHr must not be negative",
		`{"machines":{"m":{"minPodGpuCount":-1}}}`:           "machines.m.minPodGpuCount must not be negative",
		plan(`,"id":""`):                                     "savingsPlans[0].id is required",
		plan(`,"podId":""`):                                  "savingsPlans[0].podId or gpuTypeId",
		plan(`,"costPerHr":-1`):                              "savingsPlans[0].costPerHr",
		plan(`,"endTime":"2026-01-01T00:00:00Z"`):            "savingsPlans[0].endTime must be after",
		`{"note":"` + strings.Repeat("x", MaxCatalog) + `"}`: "at most",
	} {
		if _, err := ParseCatalog([]byte(text)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got %v, want %q", text, err, want)
		}
	}
}

// Whatever a catalogue holds, prices are not negative, and looking is safe.
func FuzzParseCatalog(f *testing.F) {
	f.Add([]byte(prices))
	f.Add([]byte(`{"gpuTypes":null,"machines":{"":{}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseCatalog(data)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want an ErrInvalid", err)
			}
			return
		}
		for name := range c.GPUTypes {
			p := Pod{ID: "p", Machine: Machine{GPUs: []GPU{{Name: name}}}}
			full, adjusted := c.Cost(p, time.Now())
			if full != nil && *full < 0 || adjusted != nil && *adjusted < 0 || full != nil && adjusted == nil {
				t.Errorf("got %s and %s", shown(full), shown(adjusted))
			}
		}
	})
}

func TestTheOwnGPUsOfAPod(t *testing.T) {
	t.Parallel()
	a, b := GPU{UUID: "GPU-a"}, GPU{UUID: "GPU-b"}
	machine := Machine{GPUs: []GPU{a, b}}
	for name, test := range map[string]struct {
		pod  Pod
		want []GPU
	}{
		"a worker that a user started has all":                {Pod{Machine: machine}, []GPU{a, b}},
		"a worker of a fleet has its claim":                   {Pod{Machine: machine, Driver: Process, Spec: Spec{GPUs: 1}, Devices: []string{"GPU-b"}}, []GPU{b}},
		"a process without a claim has all":                   {Pod{Machine: machine, Driver: Process}, []GPU{a, b}},
		"a container without a claim has none":                {Pod{Machine: machine, Driver: Docker}, nil},
		"a pod that waits for its GPUs has none":              {Pod{Machine: machine, Driver: Docker, Spec: Spec{GPUs: 2}}, nil},
		"a claim of a machine that says nothing has no facts": {Pod{Driver: Docker, Spec: Spec{GPUs: 1}, Devices: []string{"GPU-b"}}, nil},
	} {
		if got := test.pod.OwnGPUs(); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
