package connstring_test

import (
	"fmt"
	"strings"

	"github.com/mooringdb/mooring/core/address"
	"github.com/mooringdb/mooring/core/connstring"
)

func ExampleParse() {
	c, err := connstring.Parse("mongodb://app:hunter2@a,b:27018/shop?replicaSet=rs&maxPoolSize=50&tls=True")
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Hosts, c.Username, c.AuthSource, c.ReplicaSet, *c.MaxPoolSize)
	for _, w := range c.Warnings {
		fmt.Println(w)
	}
	fmt.Println(c) // without secrets
	// Output:
	// [a:27017 b:27018] app shop rs 50
	// Unsupported value for "tls" : "True": must be true or false
	// mongodb://***@a:27017,b:27018/shop?replicaSet=rs&maxPoolSize=50
}

// A value that an option cannot have is ignored with a warning. What would connect to something
// else than was meant is an error.
func ExampleParse_errors() {
	for _, uri := range []string{
		"mongodb://a/?tls=true&ssl=false",
		"mongodb://app:p@ss@a",
		"mongodb://app:secret@a/?authMechanism=MONGODB-AWS",
	} {
		_, err := connstring.Parse(uri)
		fmt.Println(strings.ReplaceAll(err.Error(), ": ", ":\n  "))
	}
	// Output:
	// connection string:
	//   options tls and ssl have different values
	// connection string:
	//   user name and password must be URL encoded
	// connection string:
	//   MONGODB-AWS takes neither a user name nor a password:
	//   its credentials come from the environment, not from the connection string
}

// Options of a configuration file stand beside the string, which overrides them.
func ExampleParseWith() {
	c, err := connstring.ParseWith("mongodb://a/?readPreference=nearest", map[string][]string{
		"readPreference":     {"secondary"},
		"readPreferenceTags": {"dc:ny", ""},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.ReadPreference, c.ReadPreferenceTags)
	fmt.Println(c.Warnings)
	// Output:
	// nearest [[{dc ny}] []]
	// [Option 'readPreference' beside the connection string is ignored: the string gives it itself]
}

// A mongodb+srv string gets its hosts, and some options, from DNS.
func ExampleConfig_Resolve() {
	c, err := connstring.Parse("mongodb+srv://db.example.com/")
	if err != nil {
		panic(err)
	}
	fmt.Println(c.SRVHost, c.Hosts)
	c, err = c.Resolve([]address.Address{"a.example.com:27017"}, "replicaSet=rs")
	if err != nil {
		panic(err)
	}
	fmt.Println(c.Hosts, c.ReplicaSet, c.UseTLS())
	// Output:
	// db.example.com []
	// [a.example.com:27017] rs true
}

// Settings lists the options to show, such as in a log, with secrets masked.
func ExampleConfig_Settings() {
	c, err := connstring.Parse("mongodb://a/?appName=shop&tls=true&tlsCertificateKeyFilePassword=hunter2")
	if err != nil {
		panic(err)
	}
	for _, s := range c.Settings() {
		fmt.Println(s.Option, s.Value)
	}
	// Output:
	// appName shop
	// tls true
	// tlsCertificateKeyFilePassword ***
}
