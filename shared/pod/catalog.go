package pod

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"
)

// MaxCatalog bounds a catalogue, in bytes.
const MaxCatalog = 4 << 20

// Catalog is what an operator knows of the machines and no program can find
// out. Everything in it is optional: what is absent is not known.
type Catalog struct {
	// GPUTypes are by the name that the GPU's driver gives them.
	GPUTypes map[string]GPUType `json:"gpuTypes"`
	// CPUTypes are by the model that the processor gives itself.
	CPUTypes map[string]CPUType `json:"cpuTypes"`
	// Machines are by id or, if that is not there, by hostname.
	Machines map[string]Place `json:"machines"`
	// SavingsPlans are those of all pods.
	SavingsPlans []SavingsPlan `json:"savingsPlans"`
}

// GPUType is a kind of GPU with what one of them costs in an hour, in credits.
type GPUType struct {
	DisplayName        string   `json:"displayName,omitempty"`
	SecurePrice        *float64 `json:"securePrice,omitempty"`
	CommunityPrice     *float64 `json:"communityPrice,omitempty"`
	OneMonthPrice      *float64 `json:"oneMonthPrice,omitempty"`
	ThreeMonthPrice    *float64 `json:"threeMonthPrice,omitempty"`
	SixMonthPrice      *float64 `json:"sixMonthPrice,omitempty"`
	OneWeekPrice       *float64 `json:"oneWeekPrice,omitempty"`
	CommunitySpotPrice *float64 `json:"communitySpotPrice,omitempty"`
	SecureSpotPrice    *float64 `json:"secureSpotPrice,omitempty"`
}

// CPUType is a kind of processor.
type CPUType struct {
	DisplayName string `json:"displayName,omitempty"`
	GroupID     string `json:"groupId,omitempty"`
	// FlavorID is the cpuFlavorId of pods without GPUs.
	FlavorID string `json:"flavorId,omitempty"`
	// VCPUPrice is what one virtual CPU costs in an hour.
	VCPUPrice *float64 `json:"vcpuPrice,omitempty"`
}

// Place is what a machine does not know of itself.
type Place struct {
	Location             string   `json:"location,omitempty"`
	DataCenterID         string   `json:"dataCenterId,omitempty"`
	MinPodGPUCount       *int     `json:"minPodGpuCount,omitempty"`
	DiskThroughputMBps   *float64 `json:"diskThroughputMBps,omitempty"`
	MaxDownloadSpeedMbps *float64 `json:"maxDownloadSpeedMbps,omitempty"`
	MaxUploadSpeedMbps   *float64 `json:"maxUploadSpeedMbps,omitempty"`
	SupportPublicIP      *bool    `json:"supportPublicIp,omitempty"`
	SecureCloud          *bool    `json:"secureCloud,omitempty"`
	MaintenanceStart     string   `json:"maintenanceStart,omitempty"`
	MaintenanceEnd       string   `json:"maintenanceEnd,omitempty"`
	MaintenanceNote      string   `json:"maintenanceNote,omitempty"`
	Note                 string   `json:"note,omitempty"`
	// CostPerHr is that of the whole machine.
	CostPerHr *float64 `json:"costPerHr,omitempty"`
}

// SavingsPlan makes a pod, or all with a kind of GPU, cheaper for a while.
type SavingsPlan struct {
	ID string `json:"id"`
	// PodID or GPUTypeID says whom it is for; PodID wins.
	PodID     string `json:"podId"`
	GPUTypeID string `json:"gpuTypeId"`
	// CostPerHr is what one GPU costs in an hour, or a pod that has none.
	CostPerHr float64   `json:"costPerHr"`
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// wholeCatalog stands for the path of the document itself.
const wholeCatalog = "the catalogue"

// ParseCatalog reads a catalogue. It returns a *FieldError if data is no such
// JSON document.
func ParseCatalog(data []byte) (*Catalog, error) {
	if len(data) > MaxCatalog {
		return nil, &FieldError{wholeCatalog, fmt.Sprintf("must be at most %d bytes", MaxCatalog)}
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var c *Catalog
	if err := decoder.Decode(&c); err != nil {
		wrong := Misread(data, err)
		wrong.Field = cmp.Or(wrong.Field, wholeCatalog)
		return nil, wrong
	}
	if _, err := decoder.Token(); err != io.EOF || c == nil {
		return nil, &FieldError{wholeCatalog, "must be one JSON object"}
	}
	return c, c.check()
}

func (c *Catalog) check() error {
	for name, t := range c.GPUTypes {
		if err := notNegative("gpuTypes."+name, t.prices()); err != nil {
			return err
		}
	}
	for name, t := range c.CPUTypes {
		if err := notNegative("cpuTypes."+name, map[string]*float64{"vcpuPrice": t.VCPUPrice}); err != nil {
			return err
		}
	}
	for name, p := range c.Machines {
		if err := notNegative("machines."+name, p.numbers()); err != nil {
			return err
		}
	}
	for i, plan := range c.SavingsPlans {
		if field, text := plan.wrong(); field != "" {
			return &FieldError{fmt.Sprintf("savingsPlans[%d].%s", i, field), text}
		}
	}
	return nil
}

// notNegative refuses the first field, by name, that is below 0.
func notNegative(what string, fields map[string]*float64) error {
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if n := fields[field]; n != nil && *n < 0 {
			return &FieldError{what + "." + field, fmt.Sprintf("must not be negative, got %v", *n)}
		}
	}
	return nil
}

func (t GPUType) prices() map[string]*float64 {
	return map[string]*float64{
		"securePrice": t.SecurePrice, "communityPrice": t.CommunityPrice, "oneMonthPrice": t.OneMonthPrice,
		"threeMonthPrice": t.ThreeMonthPrice, "sixMonthPrice": t.SixMonthPrice, "oneWeekPrice": t.OneWeekPrice,
		"communitySpotPrice": t.CommunitySpotPrice, "secureSpotPrice": t.SecureSpotPrice,
	}
}

func (p Place) numbers() map[string]*float64 {
	var least *float64
	if p.MinPodGPUCount != nil {
		n := float64(*p.MinPodGPUCount)
		least = &n
	}
	return map[string]*float64{
		"minPodGpuCount":     least,
		"diskThroughputMBps": p.DiskThroughputMBps, "maxDownloadSpeedMbps": p.MaxDownloadSpeedMbps,
		"maxUploadSpeedMbps": p.MaxUploadSpeedMbps, "costPerHr": p.CostPerHr,
	}
}

func (p SavingsPlan) wrong() (field, text string) {
	switch {
	case p.ID == "":
		return "id", "is required"
	case p.PodID == "" && p.GPUTypeID == "":
		return "podId", "or gpuTypeId is required"
	case p.CostPerHr < 0:
		return "costPerHr", "must not be negative"
	case !p.EndTime.After(p.StartTime):
		return "endTime", "must be after startTime"
	}
	return "", ""
}

// GPUs is how many GPUs the pod has and of which kind, as far as that is
// known. A container has those it was made with, a process all of its machine's
// unless it was made with fewer.
func (p Pod) GPUs() (kind string, count int) {
	count = p.Spec.GPUs
	if count == 0 && p.Driver != Docker {
		count = len(p.Machine.GPUs)
	}
	if count > 0 && len(p.Machine.GPUs) > 0 {
		kind = p.Machine.GPUs[0].Name
	}
	return kind, count
}

// OwnGPUs are the GPUs of its machine that the pod has, as far as that is known: those that
// were chosen for it, or all of them, as GPUs says.
func (p Pod) OwnGPUs() []GPU {
	if _, count := p.GPUs(); count == 0 || len(p.Devices) == 0 && p.Spec.GPUs > 0 {
		return nil
	}
	if len(p.Devices) == 0 {
		return p.Machine.GPUs
	}
	return slices.DeleteFunc(slices.Clone(p.Machine.GPUs), func(g GPU) bool { return !slices.Contains(p.Devices, g.UUID) })
}

// VCPUs is how many virtual CPUs the pod has, 0 if that is not known. A process
// has all of its machine's: nothing limits it.
func (p Pod) VCPUs() float64 {
	if p.Spec.VCPUs > 0 && p.Driver != Process {
		return p.Spec.VCPUs
	}
	return p.Machine.VCPUs
}

// MemoryGB is how much memory the pod has, 0 if that is not known. A process has
// all of its machine's.
func (p Pod) MemoryGB() float64 {
	if p.Spec.MemoryGB > 0 && p.Driver != Process {
		return p.Spec.MemoryGB
	}
	return p.Machine.MemoryGB
}

// Place is what the catalogue has of the pod's machine. A nil catalogue knows
// nothing.
func (c *Catalog) Place(p Pod) (Place, bool) {
	if c == nil {
		return Place{}, false
	}
	place, ok := c.Machines[p.MachineID]
	if !ok {
		place, ok = c.Machines[p.Machine.Hostname]
	}
	return place, ok
}

// GPUType is what the catalogue has of a kind of GPU.
func (c *Catalog) GPUType(kind string) GPUType {
	if c == nil {
		return GPUType{}
	}
	return c.GPUTypes[kind]
}

// CPUType is what the catalogue has of a processor.
func (c *Catalog) CPUType(model string) CPUType {
	if c == nil {
		return CPUType{}
	}
	return c.CPUTypes[model]
}

// GPUPrice is what one GPU of the pod costs in an hour, nil if the catalogue
// does not say. A machine counts as secure unless the catalogue says otherwise.
func (c *Catalog) GPUPrice(p Pod) *float64 {
	kind, _ := p.GPUs()
	t := c.GPUType(kind)
	place, _ := c.Place(p)
	secure := place.SecureCloud == nil || *place.SecureCloud
	switch {
	case secure && p.Interruptible && t.SecureSpotPrice != nil:
		return t.SecureSpotPrice
	case secure:
		return t.SecurePrice
	case p.Interruptible && t.CommunitySpotPrice != nil:
		return t.CommunitySpotPrice
	}
	return t.CommunityPrice
}

// Plans are the savings plans that hold for the pod now; never nil.
func (c *Catalog) Plans(p Pod, now time.Time) []SavingsPlan {
	plans := []SavingsPlan{}
	if c == nil {
		return plans
	}
	kind, _ := p.GPUs()
	for _, plan := range c.SavingsPlans {
		mine := plan.PodID == p.ID || plan.PodID == "" && kind != "" && plan.GPUTypeID == kind
		if mine && !now.Before(plan.StartTime) && now.Before(plan.EndTime) {
			plans = append(plans, plan)
		}
	}
	return plans
}

// Cost is what the pod costs in an hour without savings plans, and with the
// cheapest that holds now. Both are nil if the catalogue does not say.
func (c *Catalog) Cost(p Pod, now time.Time) (full, adjusted *float64) {
	_, gpus := p.GPUs()
	count := float64(max(1, gpus))
	if gpus > 0 {
		full = times(c.GPUPrice(p), count)
	} else {
		full = times(c.CPUType(p.Machine.CPU.Model).VCPUPrice, p.VCPUs())
	}
	if place, _ := c.Place(p); full == nil && p.Driver == "" {
		full = place.CostPerHr // an owner that runs its own worker has the machine
	}
	adjusted = full
	for _, plan := range c.Plans(p, now) {
		if cost := cents(plan.CostPerHr * count); adjusted == nil || cost < *adjusted {
			adjusted = &cost
		}
	}
	return full, adjusted
}

// times is price × n, nil if either is not known.
func times(price *float64, n float64) *float64 {
	if price == nil || n == 0 {
		return nil
	}
	cost := cents(*price * n)
	return &cost
}

// cents rounds to a millionth of a credit: 3 × 0.1 is 0.3.
func cents(cost float64) float64 { return math.Round(cost*1e6) / 1e6 }
