package control

import "flightline/shared/pod"

// gpuView is one kind of GPU with how many there are, and prices in credits.
type gpuView struct {
	ID          string `json:"id,omitempty"`
	Count       int    `json:"count"`
	DisplayName string `json:"displayName,omitempty"`

	SecurePrice        *float64 `json:"securePrice,omitempty"`
	CommunityPrice     *float64 `json:"communityPrice,omitempty"`
	OneMonthPrice      *float64 `json:"oneMonthPrice,omitempty"`
	ThreeMonthPrice    *float64 `json:"threeMonthPrice,omitempty"`
	SixMonthPrice      *float64 `json:"sixMonthPrice,omitempty"`
	OneWeekPrice       *float64 `json:"oneWeekPrice,omitempty"`
	CommunitySpotPrice *float64 `json:"communitySpotPrice,omitempty"`
	SecureSpotPrice    *float64 `json:"secureSpotPrice,omitempty"`
}

// machineView is the contract's Machine, and after that what is ours.
type machineView struct {
	MinPodGPUCount       *int         `json:"minPodGpuCount,omitempty"`
	GPUTypeID            string       `json:"gpuTypeId,omitempty"`
	GPUType              *gpuView     `json:"gpuType,omitempty"`
	CPUCount             int          `json:"cpuCount,omitempty"`
	CPUTypeID            string       `json:"cpuTypeId,omitempty"`
	CPUType              *cpuTypeView `json:"cpuType,omitempty"`
	Location             string       `json:"location,omitempty"`
	DataCenterID         string       `json:"dataCenterId,omitempty"`
	DiskThroughputMBps   *float64     `json:"diskThroughputMBps,omitempty"`
	MaxDownloadSpeedMbps *float64     `json:"maxDownloadSpeedMbps,omitempty"`
	MaxUploadSpeedMbps   *float64     `json:"maxUploadSpeedMbps,omitempty"`
	SupportPublicIP      *bool        `json:"supportPublicIp,omitempty"`
	SecureCloud          *bool        `json:"secureCloud,omitempty"`
	MaintenanceStart     string       `json:"maintenanceStart,omitempty"`
	MaintenanceEnd       string       `json:"maintenanceEnd,omitempty"`
	MaintenanceNote      string       `json:"maintenanceNote,omitempty"`
	Note                 string       `json:"note,omitempty"`
	CostPerHr            *float64     `json:"costPerHr,omitempty"`
	CurrentPricePerGPU   *float64     `json:"currentPricePerGpu,omitempty"`
	GPUAvailable         *int         `json:"gpuAvailable,omitempty"`
	GPUDisplayName       string       `json:"gpuDisplayName,omitempty"`

	Hostname   string   `json:"hostname,omitempty"`
	OS         string   `json:"os,omitempty"`
	Arch       string   `json:"arch,omitempty"`
	Addresses  []string `json:"addresses,omitempty"`
	MemoryInGb float64  `json:"memoryInGb,omitempty"`
	DiskInGb   float64  `json:"diskInGb,omitempty"`
	GPUDriver  string   `json:"gpuDriver,omitempty"`
	Version    string   `json:"version,omitempty"`
}

// cpuTypeView is a kind of processor.
type cpuTypeView struct {
	ID             string  `json:"id"`
	DisplayName    string  `json:"displayName"`
	Cores          int     `json:"cores,omitempty"`
	ThreadsPerCore float64 `json:"threadsPerCore,omitempty"`
	GroupID        string  `json:"groupId,omitempty"`
}

// flavorOf is "" for a pod with GPUs.
func flavorOf(p pod.Pod, catalog *pod.Catalog) string {
	if _, gpus := p.GPUs(); gpus > 0 {
		return ""
	}
	return catalog.CPUType(p.Machine.CPU.Model).FlavorID
}

// gpuOf is nil for a pod without GPUs.
func gpuOf(p pod.Pod, catalog *pod.Catalog) *gpuView {
	kind, count := p.GPUs()
	return gpuViewOf(kind, count, catalog)
}

func gpuViewOf(kind string, count int, catalog *pod.Catalog) *gpuView {
	if count == 0 {
		return nil
	}
	t := catalog.GPUType(kind)
	view := &gpuView{
		ID: kind, Count: count, DisplayName: t.DisplayName,
		SecurePrice: t.SecurePrice, CommunityPrice: t.CommunityPrice, OneMonthPrice: t.OneMonthPrice,
		ThreeMonthPrice: t.ThreeMonthPrice, SixMonthPrice: t.SixMonthPrice, OneWeekPrice: t.OneWeekPrice,
		CommunitySpotPrice: t.CommunitySpotPrice, SecureSpotPrice: t.SecureSpotPrice,
	}
	if view.DisplayName == "" {
		view.DisplayName = kind
	}
	return view
}

// machineOf is what is known of the pod's machine, nil if that is nothing.
func machineOf(p pod.Pod, all tally, catalog *pod.Catalog) *machineView {
	m := p.Machine
	place, placed := catalog.Place(p)
	if p.MachineID == "" && m.Hostname == "" && !placed {
		return nil
	}
	view := &machineView{
		MinPodGPUCount: place.MinPodGPUCount, CPUCount: m.CPU.Threads, CPUTypeID: m.CPU.Model, CPUType: cpuTypeOf(m.CPU, catalog),
		Location: place.Location, DataCenterID: place.DataCenterID, DiskThroughputMBps: place.DiskThroughputMBps,
		MaxDownloadSpeedMbps: place.MaxDownloadSpeedMbps, MaxUploadSpeedMbps: place.MaxUploadSpeedMbps,
		SupportPublicIP: place.SupportPublicIP, SecureCloud: place.SecureCloud,
		MaintenanceStart: place.MaintenanceStart, MaintenanceEnd: place.MaintenanceEnd, MaintenanceNote: place.MaintenanceNote,
		Note: place.Note, CostPerHr: place.CostPerHr,
		Hostname: m.Hostname, OS: m.OS, Arch: m.Arch, Addresses: m.Addresses, MemoryInGb: m.MemoryGB, DiskInGb: m.DiskGB,
		GPUDriver: m.GPUDriver, Version: m.Version,
	}
	if len(m.GPUs) > 0 {
		view.GPUTypeID = m.GPUs[0].Name
		view.GPUType = gpuViewOf(view.GPUTypeID, len(m.GPUs), catalog)
		view.GPUDisplayName = view.GPUType.DisplayName
		view.CurrentPricePerGPU = catalog.GPUPrice(p)
		view.GPUAvailable = all.free(p)
	}
	return view
}

func cpuTypeOf(cpu pod.CPU, catalog *pod.Catalog) *cpuTypeView {
	if cpu.Model == "" {
		return nil
	}
	t := catalog.CPUType(cpu.Model)
	view := &cpuTypeView{ID: cpu.Model, DisplayName: t.DisplayName, Cores: cpu.Cores, GroupID: t.GroupID}
	if view.DisplayName == "" {
		view.DisplayName = cpu.Model
	}
	if cpu.Cores > 0 {
		view.ThreadsPerCore = float64(cpu.Threads) / float64(cpu.Cores)
	}
	return view
}
