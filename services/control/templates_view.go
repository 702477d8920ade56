package control

import "flightline/shared/pod"

// templateView is a template as RunPod's REST API shows it.
type templateView struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Capabilities      []string          `json:"capabilities,omitempty"`
	Category          string            `json:"category,omitempty"`
	ContainerDiskInGb int               `json:"containerDiskInGb"`
	RegistryAuthID    string            `json:"containerRegistryAuthId,omitempty"`
	DockerEntrypoint  []string          `json:"dockerEntrypoint"`
	DockerStartCmd    []string          `json:"dockerStartCmd"`
	Earned            float64           `json:"earned"`
	Env               map[string]string `json:"env"`
	ImageName         string            `json:"imageName,omitempty"`
	IsPublic          bool              `json:"isPublic"`
	IsRunpod          bool              `json:"isRunpod"`
	IsServerless      bool              `json:"isServerless"`
	Ports             []string          `json:"ports"`
	Readme            string            `json:"readme"`
	// RuntimeInMin is how long the pods of it that there still are have run
	// since their last start.
	RuntimeInMin    int    `json:"runtimeInMin"`
	VolumeInGb      int    `json:"volumeInGb"`
	VolumeMountPath string `json:"volumeMountPath"`
}

func templateViewOf(t pod.Template, all tally) templateView {
	return templateView{
		ID: t.ID, Name: t.Name, Category: t.Category, ContainerDiskInGb: t.Spec.DiskGB, RegistryAuthID: t.Spec.RegistryAuthID,
		DockerEntrypoint: orEmpty(t.Spec.Entrypoint), DockerStartCmd: orEmpty(t.Spec.Command), Env: pod.Redact(t.Spec.Env),
		ImageName: t.Spec.Image, IsServerless: t.Serverless, Ports: orEmpty(t.Spec.Ports), Capabilities: t.Spec.Capabilities, Readme: t.Readme,
		RuntimeInMin: int(all.ran[t.ID].Minutes()), VolumeInGb: t.Spec.VolumeGB, VolumeMountPath: t.Spec.VolumePath,
	}
}

// volumeView is a network volume as the contract shows it.
type volumeView struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Size         int    `json:"size"`
	DataCenterID string `json:"dataCenterId"`
	// Path is where it is on the hosts, "" if a driver decides.
	Path string `json:"path,omitempty"`
}

func volumeViewOf(v pod.Volume) volumeView {
	return volumeView{ID: v.ID, Name: v.Name, Size: v.SizeGB, DataCenterID: v.DataCenterID, Path: v.Path}
}
