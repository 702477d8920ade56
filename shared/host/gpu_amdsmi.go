package host

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"

	"flightline/shared/pod"
)

// amdCard is what amd-smi says of a card.
type amdCard struct {
	name          string
	memoryMB      int
	uncorrectable int // memory errors since the driver was loaded
}

// amdEntry is a card in the output of `amd-smi static --json` and of `amd-smi metric --ecc
// --json`, as far as it is read here.
type amdEntry struct {
	GPU  int `json:"gpu"`
	ASIC struct {
		Name amdText `json:"market_name"` //nolint:tagliatelle // AMD's
	} `json:"asic"`
	Bus struct {
		BDF amdText `json:"bdf"`
	} `json:"bus"`
	VRAM struct {
		Size amdNumber `json:"size"`
	} `json:"vram"`
	ECC struct {
		Uncorrectable amdNumber `json:"total_uncorrectable_count"` //nolint:tagliatelle // AMD's
	} `json:"ecc"`
}

// amdText is a text, "" for what amd-smi does not know.
type amdText string

func (t *amdText) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil && text != "N/A" {
		*t = amdText(text)
	}
	return nil
}

// amdNumber is a number, alone or with its unit; 0 for what amd-smi does not know. A size
// is in MB.
type amdNumber float64

func (n *amdNumber) UnmarshalJSON(data []byte) error {
	var with struct {
		Value json.Number `json:"value"`
		Unit  string      `json:"unit"`
	}
	known := json.Unmarshal(data, &with) == nil || json.Unmarshal(data, &with.Value) == nil // else it is "N/A"
	if value, err := with.Value.Float64(); known && err == nil && value >= 0 && value <= maxAMDNumber {
		if strings.EqualFold(with.Unit, "GB") {
			value *= 1024
		}
		*n = amdNumber(value)
	}
	return nil
}

// maxAMDNumber is more than any card has, and fits an int.
const maxAMDNumber = 1 << 30

// parseAMD reads what both commands printed: a list, or an object with one, as ROCm has it
// from version 7 on. The cards are by their address on the PCI bus.
func parseAMD(static, ecc []byte) (map[string]amdCard, error) {
	cards, err := amdEntries(static)
	if err != nil {
		return nil, fmt.Errorf("read the output of amd-smi static: %w", err)
	}
	errors := map[int]int{}
	counts, err := amdEntries(ecc)
	if err != nil {
		err = fmt.Errorf("read the output of amd-smi metric: %w", err)
	}
	for _, c := range counts {
		errors[c.GPU] = int(c.ECC.Uncorrectable)
	}
	found := map[string]amdCard{}
	for _, c := range cards {
		if c.Bus.BDF != "" {
			found[strings.ToLower(string(c.Bus.BDF))] = amdCard{string(c.ASIC.Name), int(c.VRAM.Size), errors[c.GPU]}
		}
	}
	return found, err
}

func amdEntries(text []byte) ([]amdEntry, error) {
	var list []amdEntry
	if json.Unmarshal(text, &list) == nil {
		return list, nil
	}
	var object struct {
		Cards []amdEntry `json:"gpu_data"` //nolint:tagliatelle // AMD's
	}
	err := json.Unmarshal(text, &object)
	return object.Cards, err
}

// askAMD adds to the cards, which are by their addresses, what amd-smi of the PATH knows
// better than the driver's files. Without it they stay as they are.
func askAMD(ctx context.Context, cards []pod.GPU, addresses []string, log *slog.Logger) {
	if _, missing := exec.LookPath("amd-smi"); missing != nil || len(cards) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	static, err := output(ctx, "amd-smi", "static", "--json")
	if err != nil {
		log.DebugContext(ctx, "amd-smi not asked", "err", err)
		return
	}
	ecc, err := output(ctx, "amd-smi", "metric", "--ecc", "--json")
	if err != nil {
		log.DebugContext(ctx, "memory errors not asked for", "err", err)
	}
	known, err := parseAMD(static, ecc)
	if err != nil {
		log.DebugContext(ctx, "amd-smi not understood", "err", err)
	}
	for i := range cards {
		cards[i] = known[strings.ToLower(addresses[i])].onto(cards[i])
	}
}

// onto is the card with what amd-smi knows besides.
func (c amdCard) onto(g pod.GPU) pod.GPU {
	if g.MemoryMB == 0 && c.memoryMB > 0 {
		g.MemoryMB, g.MemoryGB = c.memoryMB, inGB(float64(c.memoryMB)*(1<<20))
	}
	if g.Name == unnamedAMD && c.name != "" {
		g.Name = c.name
	}
	if c.uncorrectable > 0 {
		g.Health = fmt.Sprintf("%d uncorrectable memory errors since the driver was loaded", c.uncorrectable)
	}
	return g
}
