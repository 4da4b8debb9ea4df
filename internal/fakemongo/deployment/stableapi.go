package deployment

import (
	"slices"

	"github.com/mooringdb/mooring/internal/fakemongo"
	"github.com/mooringdb/mooring/internal/fakemongo/failure"
)

// Parameters are the server parameters that tests ask for, as all servers have them.
var Parameters = map[string]bool{
	"enableTestCommands": true, "acceptApiVersion2": true, "requireApiVersion": false,
}

// notInVersion1 are the commands and the stages that version 1 of the stable API does not have.
var notInVersion1 = []string{"distinct", "testVersion2", "$listLocalSessions"}

// checkAPI refuses what the stable API that a command declares does not allow.
func checkAPI(cmd *fakemongo.Command) error {
	version, declared := field(cmd.Body, "apiVersion").Str()
	strict, _ := field(cmd.Body, "apiStrict").Bool()
	deprecation, _ := field(cmd.Body, "apiDeprecationErrors").Bool()
	switch {
	case !declared && (cmd.Body.Has("apiStrict") || cmd.Body.Has("apiDeprecationErrors")):
		return failure.APIVersionError.Errorf(
			"apiStrict and apiDeprecationErrors need an apiVersion")
	case declared && version != "1" && version != "2":
		return failure.APIVersionError.Errorf("API version must be 1 or 2")
	case deprecation && version == "2" && cmd.Name == "testDeprecationInVersion2":
		return failure.APIDeprecationError.Errorf(
			"Provided apiDeprecationErrors: true, but the command %s is deprecated in API "+
				"Version 2", cmd.Name)
	case !strict || version != "1":
		return nil
	case slices.Contains(notInVersion1, cmd.Name):
		return failure.APIStrictError.Errorf(
			"Provided apiStrict:true, but the command %s is not in API Version 1", cmd.Name)
	}
	stages, _ := field(cmd.Body, "pipeline").Array()
	for stage := range stages.Documents() {
		if slices.Contains(notInVersion1, stage.FirstKey()) {
			return failure.APIStrictError.Errorf(
				"stage %s is not allowed with 'apiStrict: true' in API Version 1", stage.FirstKey())
		}
	}
	return nil
}
