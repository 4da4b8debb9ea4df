// What the editor completes: the operators of queries and expressions, and the stages of pipelines.
export const operators = (
  '$eq $gt $gte $in $lt $lte $ne $nin $and $not $nor $or $exists $type $expr $jsonSchema $mod ' +
  '$regex $text $where $geoIntersects $geoWithin $near $nearSphere $all $elemMatch $size ' +
  '$bitsAllClear $bitsAllSet $bitsAnyClear $bitsAnySet $meta $slice $abs $add $addToSet $avg ' +
  '$arrayElemAt $ceil $concat $concatArrays $cond $count $dateAdd $dateDiff $dateFromString ' +
  '$dateToString $dateTrunc $dayOfMonth $divide $filter $first $floor $hour $ifNull ' +
  '$indexOfArray $isArray $last $let $literal $map $max $mergeObjects $min $month $multiply ' +
  '$objectToArray $pow $push $range $reduce $round $sortArray $split $stdDevPop $strLenCP ' +
  '$substrCP $subtract $sum $switch $toDate $toInt $toLower $toObjectId $toString $toUpper $trim ' +
  '$year $zip $oid $date $numberInt $numberLong $numberDouble $numberDecimal $binary $uuid ' +
  '$regularExpression $timestamp $minKey $maxKey'
).split(' ');

export const stages = (
  '$addFields $bucket $bucketAuto $collStats $count $densify $facet $fill $geoNear $graphLookup ' +
  '$group $indexStats $limit $lookup $match $project $redact $replaceRoot $replaceWith $sample ' +
  '$set $setWindowFields $skip $sort $sortByCount $unionWith $unset $unwind'
).split(' ');
