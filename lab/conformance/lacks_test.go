package conformance_test

// What the engine lacks, by class. The cases of a class are skipped there; the scripted deployment
// runs them.
const (
	lacksCollation     = "the engine has no collations"
	lacksSessionsStage = "the engine has no $listLocalSessions"
	lacksHint          = "the engine's findAndModify takes no hint"
	lacksOldChecks     = "the engine takes keys that begin with $, as servers since 5.0 do"
	lacksClustered     = "the engine has no clustered collections"
	lacksPrepareUnique = "the engine converts no index to unique"
	lacksTimeSeries    = "the engine has no time series"
	lacksMergeError    = "the engine's $merge replaces what it is to fail on"
	lacksBulkWrite     = "the engine has no bulkWrite command"
	lacksSearchIndexes = "the engine has no search indexes, also not the error of servers without"
	lacksTransactions  = "the deployment gives this engine single commands"
	lacksConcern       = "the engine refuses no read concern"
)

// lacking are the cases that PostgreSQL with DocumentDB fails (lab/docdb). A row fails the test if
// its case passes.
var lacking = map[string]map[[2]string]string{
	"crud": {
		{"aggregate-collation.json", ""}:         lacksCollation,
		{"bulkWrite-collation.json", ""}:         lacksCollation,
		{"count-collation.json", ""}:             lacksCollation,
		{"deleteOne-collation.json", ""}:         lacksCollation,
		{"distinct-collation.json", ""}:          lacksCollation,
		{"find-collation.json", ""}:              lacksCollation,
		{"findOneAndReplace-collation.json", ""}: lacksCollation,
		{"findOneAndUpdate-collation.json", ""}:  lacksCollation,
		{"replaceOne-collation.json", ""}:        lacksCollation,
		{"updateMany-collation.json", ""}:        lacksCollation,
		{"updateOne-collation.json", ""}:         lacksCollation,

		{"db-aggregate.json", ""}:                      lacksSessionsStage,
		{"db-aggregate-rawdata.json", ""}:              lacksSessionsStage,
		{"db-aggregate-write-readPreference.json", ""}: lacksSessionsStage,

		{"findOneAndUpdate-hint.json", ""}: lacksHint,

		{"bulkWrite-insertOne-dots_and_dollars.json", insertDollar}:   lacksOldChecks,
		{"bulkWrite-replaceOne-dots_and_dollars.json", replaceDollar}: lacksOldChecks,
		{"findOneAndReplace-dots_and_dollars.json", replaceDollar}:    lacksOldChecks,
		{"insertMany-dots_and_dollars.json", insertDollar}:            lacksOldChecks,
		{"insertOne-dots_and_dollars.json", insertDollar}:             lacksOldChecks,
		{"replaceOne-dots_and_dollars.json", replaceDollar}:           lacksOldChecks,

		{"client-bulkWrite-delete-options.json", ""}:     lacksBulkWrite,
		{"client-bulkWrite-mixed-namespaces.json", ""}:   lacksBulkWrite,
		{"client-bulkWrite-options.json", ""}:            lacksBulkWrite,
		{"client-bulkWrite-ordered.json", ""}:            lacksBulkWrite,
		{"client-bulkWrite-replaceOne-rawdata.json", ""}: lacksBulkWrite,
		{"client-bulkWrite-replaceOne-sort.json", ""}:    lacksBulkWrite,
		{"client-bulkWrite-results.json", ""}:            lacksBulkWrite,
		{"client-bulkWrite-update-pipeline.json", ""}:    lacksBulkWrite,
		{"client-bulkWrite-updateOne-sort.json", ""}:     lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when second operation fails during an ordered bulk write (verbose)",
		}: lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when second operation fails during an ordered bulk write (summary)",
		}: lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when first operation fails during an unordered bulk write (verbose)",
		}: lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when first operation fails during an unordered bulk write (summary)",
		}: lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when second operation fails during an unordered bulk write (verbose)",
		}: lacksBulkWrite,
		{
			"client-bulkWrite-partialResults.json",
			"partialResult is set when second operation fails during an unordered bulk write (summary)",
		}: lacksBulkWrite,
		{
			"create-null-ids.json", "inserting _id with type null via clientBulkWrite",
		}: lacksBulkWrite,

		{
			"aggregate-merge-errorResponse.json",
			"aggregate $merge DuplicateKey error is accessible",
		}: lacksMergeError,
		{
			"aggregate-out-readConcern.json", "readConcern linearizable with out stage",
		}: lacksConcern,
	},
	"collection-management": {
		{"clustered-indexes.json", "createCollection with clusteredIndex"}:    lacksClustered,
		{"clustered-indexes.json", "listCollections includes clusteredIndex"}: lacksClustered,
		{"clustered-indexes.json", "listIndexes returns the index"}:           lacksClustered,
		{
			"modifyCollection-errorResponse.json",
			"modifyCollection prepareUnique violations are accessible",
		}: lacksPrepareUnique,
		{"timeseries-collection.json", ""}: lacksTimeSeries,
	},
	"index-management": {
		{"listSearchIndexes.json", ""}: lacksSearchIndexes,
	},
	"versioned-api": {
		{
			"crud-api-version-1.json", "client bulkWrite appends declared API version",
		}: lacksBulkWrite,
		{
			"crud-api-version-1.json", "aggregate on database appends declared API version",
		}: lacksSessionsStage,
		{
			"transaction-handling.json", "All commands in a transaction declare an API version",
		}: lacksTransactions,
		{
			"transaction-handling.json", "abortTransaction includes an API version",
		}: lacksTransactions,
	},
}

const (
	insertDollar = "Inserting document with top-level dollar-prefixed key on pre-5.0 server " +
		"yields server-side error"
	replaceDollar = "Replacing document with dollar-prefixed key in embedded doc on pre-5.0 " +
		"server yields server-side error"
)
