package sigv4_test

import (
	"maps"
	"testing"

	"github.com/mooringdb/mooring/internal/sigv4"
)

// AWS's published examples: the one of its documentation (IAM's ListUsers) and "get-vanilla" of
// its test suite.
const secretKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"

var (
	listUsers = sigv4.Request{
		Method: "GET", Path: "/", Query: "Action=ListUsers&Version=2010-05-08",
		Header: map[string]string{
			"content-type": "application/x-www-form-urlencoded; charset=utf-8",
			"host":         "iam.amazonaws.com",
			"x-amz-date":   "20150830T123600Z",
			"authorization": "AWS4-HMAC-SHA256 " +
				"Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, " +
				"SignedHeaders=content-type;host;x-amz-date, " +
				"Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
		},
	}
	getVanilla = sigv4.Request{
		Method: "GET", Path: "/",
		Header: map[string]string{
			"host":       "example.amazonaws.com",
			"x-amz-date": "20150830T123600Z",
			"authorization": "AWS4-HMAC-SHA256 " +
				"Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, " +
				"SignedHeaders=host;x-amz-date, " +
				"Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		},
	}
)

func secretOf(id string) string {
	if id == "AKIDEXAMPLE" {
		return secretKey
	}
	return ""
}

func TestVerifyPublishedExamples(t *testing.T) {
	for _, r := range []sigv4.Request{listUsers, getVanilla} {
		c, err := sigv4.Verify(r, secretOf)
		if err != nil || c.AccessKeyID != "AKIDEXAMPLE" || c.Region != "us-east-1" {
			t.Errorf("Verify(%s) = %+v, %v", r.Header["host"], c, err)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	for name, change := range map[string]func(*sigv4.Request){
		"another body":        func(r *sigv4.Request) { r.Body = "x" },
		"another method":      func(r *sigv4.Request) { r.Method = "POST" },
		"another host":        func(r *sigv4.Request) { r.Header["host"] = "example.com" },
		"another day":         func(r *sigv4.Request) { r.Header["x-amz-date"] = "20150831T123600Z" },
		"no signed header":    func(r *sigv4.Request) { delete(r.Header, "content-type") },
		"no authorization":    func(r *sigv4.Request) { delete(r.Header, "authorization") },
		"no scope":            func(r *sigv4.Request) { r.Header["authorization"] = "AWS4-HMAC-SHA256 Credential=A" },
		"headers in disorder": func(r *sigv4.Request) { r.Header["authorization"] = disorder },
		"an unknown key":      func(r *sigv4.Request) { r.Header["authorization"] = unknown },
	} {
		r := listUsers
		r.Header = maps.Clone(r.Header)
		change(&r)
		if _, err := sigv4.Verify(r, secretOf); err == nil {
			t.Errorf("%s: Verify has no error", name)
		}
	}
}

const (
	disorder = "AWS4-HMAC-SHA256 " +
		"Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, " +
		"SignedHeaders=x-amz-date;host, Signature=0"
	unknown = "AWS4-HMAC-SHA256 Credential=OTHER/20150830/us-east-1/iam/aws4_request, " +
		"SignedHeaders=host, Signature=0"
)
