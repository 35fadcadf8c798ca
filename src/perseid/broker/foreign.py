"""Keys of the original's broker that there is no option for, and what is done with each: refused, told of, passed over.

Refused is what would go wrong in silence if it were ignored: messages or offsets out of sight, promises not kept.
Told of is what has an effect there and none here. Passed over is what belongs to threads, pools, buffers and files that
are not here. Names are those of BrokerConfig, MessageStoreConfig and AuthConfig, RocketMQ 5.5.0.
"""

from __future__ import annotations

from perseid.base.config import Foreign, Ignored, Refusal
from perseid.base.original import AUTH_CACHES, AUTH_CLASSES, METRICS, NETTY, NO_METRICS

_FALSE = ("false",)
_NO_ROCKSDB = "would be in RocksDB, which Perseid does not read"
_NAMED = "name the servers in namesrvAddr"

REFUSED = (
    # files and forms that are not read here
    Refusal(
        "storeType",
        ("default",),
        "the queues of a folder of another kind would be in RocksDB, which Perseid does not read",
    ),
    Refusal(
        "configManagerVersion",
        ("v1",),
        "topics, groups and offsets would be in RocksDB, which Perseid does not read: all of them would be gone "
        "from view",
        "export them with the original's rocksDBConfigToJson first",
    ),
    Refusal(
        "popConsumerKVServiceEnable",
        _FALSE,
        "what is popped and not acknowledged would be in RocksDB, which Perseid does not read",
    ),
    Refusal("timerRocksDBEnable", _FALSE, "messages for a time would be in RocksDB, which Perseid does not read"),
    Refusal("transRocksDBEnable", _FALSE, "open transactions would be in RocksDB, which Perseid does not read"),
    Refusal(
        "enableConsumeQueueExt",
        _FALSE,
        "queues would hold places of an extension instead of tags, which Perseid does not read",
    ),
    Refusal(
        "enabledAppendPropCRC",
        _FALSE,
        "each record would end with a checksum of its properties; Perseid's have none",
    ),
    Refusal(
        "forceVerifyPropCRC",
        _FALSE,
        "records without a checksum of their properties would be cut off; Perseid's have none",
    ),
    Refusal(
        "messageStorePlugIn",
        (),
        "messages would go through a store of these classes, to tiered storage perhaps; Perseid has no plug-ins",
    ),
    Refusal("duplicationEnable", _FALSE, "the log would come from another broker; Perseid has no duplication"),
    # other places
    Refusal(
        "storePathDLedgerCommitLog",
        (),
        "a DLedger group's log would be there; Perseid keeps it at dledger-ID/data below storePathRootDir",
        "move it there",
    ),
    Refusal(
        "storePathEpochFile",
        (),
        "the epochs would be read from there; Perseid keeps them at epochFileCheckpoint below storePathRootDir",
        "move the file there",
    ),
    Refusal(
        "storePathBrokerIdentity",
        (),
        "the broker's id would be read from there; Perseid keeps it at brokerIdentity below storePathRootDir",
        "move the file there",
    ),
    Refusal(
        "dataStorePath",
        (),
        "a DLedger group's log would be there; Perseid keeps it at dledger-ID/data below storePathRootDir",
        "move it there",
    ),
    Refusal(
        "readOnlyDataStoreDirs",
        (),
        "older files of a DLedger group's log would be read from there, too; Perseid reads one folder",
        "move them to dledger-ID/data below storePathRootDir",
    ),
    Refusal(
        "readOnlyCommitLogStorePaths",
        (),
        "older files of the log would be read from there, too; Perseid reads one folder",
        "move them to storePathCommitLog, or a DLedger group's to dledger-ID/data below storePathRootDir",
    ),
    Refusal(
        "brokerConfigPaths",
        (),
        "the brokers of these files would run in one process, a container; here each is a process",
        "start perseid broker with each of them",
    ),
    # who may, and who is asked
    Refusal(
        "migrateAuthFromV1Enabled", _FALSE, "access lists of ACL 1.0 would be taken over at each start",
        "take them over once: perseid admin acl import",
    ),
    Refusal(
        "aclEnable", _FALSE, "clients would need to be on a list of ACL 1.0, which Perseid does not read",
        "set authenticationEnabled and authorizationEnabled, and take the list over: perseid admin acl import",
    ),
    Refusal("rejectPullConsumerEnable", _FALSE, "consumers that pull would be turned away; Perseid serves them"),
    Refusal(
        "fetchNamesrvAddrByAddressServer",
        _FALSE,
        "the name servers would be asked of an address server; Perseid does not ask",
        "name the servers in namesrvAddr",
    ),
    Refusal(
        "fetchNameSrvAddrByDnsLookup",
        _FALSE,
        "the name servers would be all addresses of a name; Perseid does not look for them",
        "name the servers in namesrvAddr",
    ),
    Refusal(
        "fetchControllerAddrByDnsLookup",
        _FALSE,
        "the controllers would be all addresses of a name; Perseid does not look for them",
        "name them in controllerAddr",
    ),
    # who leads
    Refusal(
        "controllerType",
        ("dledger",),
        "the controllers' log would be JRaft's; Perseid has no controller of this kind",
    ),
    Refusal(
        "enableLeaderElector",
        ("true",),
        "this member would never stand for election nor vote; Perseid's always do",
    ),
    Refusal(
        "lockInStrictMode",
        _FALSE,
        "queues would be locked at all brokers of a set; Perseid locks them at the one that is asked",
    ),
)
"""What would go wrong in silence if it were ignored."""

IGNORED = (
    NO_METRICS,
    Ignored("filterSupportRetry", _FALSE, "what comes again is not filtered"),
    Ignored("disableConsumeIfConsumerReadSlowly", _FALSE, "groups that are far behind are served"),
    Ignored("coldCtrStrategyEnable", _FALSE, "limits of cold reads do not adapt themselves"),
    Ignored("useStaticSubscription", _FALSE, "subscriptions are those of heartbeats"),
    Ignored("enablePopMessageThreshold", _FALSE, "pops are not limited by what is in flight"),
    Ignored("reviveQueueNum", ("8",), "the topic of acknowledgements has 8 queues"),
    Ignored("indexRocksDBEnable", _FALSE, "messages are found by their keys in index files"),
    Ignored("appendTopicForTimerDeleteKey", _FALSE, "a recall names a message by its unique key"),
    Ignored("timerInterceptDelayLevel", _FALSE, "delay levels do not go by the timer wheel"),
    Ignored("timerStopEnqueue", _FALSE, "messages for a time are taken in"),
    Ignored("timerWheelSnapshotFlush", _FALSE, "the timer wheel is saved with its checkpoint"),
    Ignored("maxTopicLength", ("127",), "127 characters are the most in a topic's name"),
    Ignored("liteLagLatencyCollectEnable", _FALSE, "lags of lite topics are not told by time"),
    Ignored("enableLiteEventMode", ("true",), "pops of lite topics go by events"),
    Ignored("validateSystemTopicWhenUpdateTopic", ("true",), "topics of the broker's own are not changed by requests"),
    *AUTH_CLASSES,
)
"""What has an effect there and none here."""

_MEANINGLESS = """
-- threads and their queues
ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity
asyncSendEnable batchDispatchRequestThreadPoolNums brokerFastFailureEnable clientManagerThreadPoolQueueCapacity
clientManageThreadPoolNums consumerManagerThreadPoolQueueCapacity consumerManageThreadPoolNums dispatchCqCacheNum
dispatchCqThreads dispatchFromSenderThread enableAsyncReput enableBatchPush enableBuildConsumeQueueConcurrently
enableFastChannelEventProcess enableScheduleAsyncDeliver endTransactionPoolQueueCapacity endTransactionThreadPoolNums
heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity maxAsyncPutMessageRequests
processReplyMessageThreadPoolNums pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
putMessageTimeout putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
recoverConcurrently recoverThreadPoolNums replyThreadPoolQueueCapacity scheduleAsyncDeliverMaxPendingLimit
scheduleAsyncDeliverMaxResendNum2Blocked sendMessageThreadPoolNums sendThreadPoolQueueCapacity
spinLockCollisionRetreatOptimalDegree timerEnableDisruptor timerGetMessageThreadNum timerPutMessageThreadNum
topicQueueLockNum useABSLock useReentrantLockWhenPutMessage waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInTransactionQueue
wakeCommitWhenPutMessage wakeFlushWhenPutMessage
-- buffers, mapped files and how they are written
accessMessageInMemoryHotRatio autoMessageVersionOnTopicLen bitMapLengthConsumeQueueExt checkCommitLogOffsetOnRecover
cleanSwapedMapInterval coldDataScanEnable commitCommitLogLeastPages commitCommitLogThoroughInterval
commitIntervalCommitLog commitLogForceSwapMapInterval commitLogRecoverMaxNum commitLogSwapMapInterval
commitLogSwapMapReserveFileNum correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
dataReadAheadEnable debugLockEnable deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
disappearTimeAfterStart diskFallRecorded enableAcceleratedRecovery enableCleanExpiredOffset
enableLogConsumeQueueRepeatedlyBuildWhenRecover enableRunningFlagsInFlush fastFailIfNoBufferInStorePool
flushCommitLogTimed flushConsumeQueueLeastPages flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile
indexFileReadEnable indexFileWriteEnable logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSizeConsumeQueueExt mappedFileSwapEnable
maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxRecoveryCommitlogFiles maxSlaveResendLength
messageIndexSafe offsetCheckInSlave osPageCacheBusyTimeOutMills pullBatchMaxMessageCount
putConsumeQueueDataByFileChannel putMsgIndexHightWater readUnCommitted recheckReputOffsetFromCq
redeleteHangedFileInterval replicasPerDiskPartition sampleCountThreshold sampleSteps searchBcqByCacheEnable
sharedByteBufferNum syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
timerEnableCheckMetrics timerEnableRetryUntilSuccess timerMetricSmallThreshold timerProgressLogIntervalMs
timerRecallToTimelineEnable timerRecallToTimeWheelEnable timerReputServiceCorePoolSize timerReputServiceMaxPoolSize
timerReputServiceQueueCapacity timerSkipUnknownError timerStopDequeue timerWarmEnable timerWheelSnapshotIntervalMs
transferMsgByHeap transientStorePoolEnable transientStorePoolSize transWriteOriginTransHalfEnable
travelCqFileNumWhenGetMessage warmMapedFileEnable writeWithoutMmap
-- RocksDB, beside a store of files
bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin combineAssignOffsetCQType
combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
combineCQUseRocksdbForLmq enableRocksDBLog iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
memTableFlushIntervalMs persistConsumerOffsetIncrementally popConsumerFSServiceInit popConsumerKVServiceInit
popConsumerKVServiceLog realTimePersistRocksDBConfig rocksdbCompressionType rocksdbCQDoubleWriteEnable
rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec timerRocksDBPrecisionMs
timerRocksDBRollIntervalHours timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
timerRocksDBTimeExpiredMaxTps transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
transactionCheckRocksdbQueueCapacity useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
-- filters by bitmaps
enableCalcFilterBitMap expectConsumerNumUseFilter filterDataCleanTimeSpan maxErrorRateOfBloomFilter
-- pops, whose acknowledgements are not merged in memory here
appendAckAsync appendCkAsync enableLitePopLog enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag
enablePopBatchAck enablePopBufferMerge enablePopLog enableSkipLongAwaitingAck maxMessageFilterNumForNotification
maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
popPollingSize popReviveConcurrency popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead popReviveSkipIfGroupAbsent
reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime skipWhenCKRePutReachMaxTimes
useMessageFilterForNotification
-- statistics, tables and what is told to whom
accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats broadcastOffsetExpireMaxSecond
broadcastOffsetExpireSecond cleanOfflineBrokerInterval clearRetryTopicWhenDeleteTopic commercialBaseCount
commercialSizePerMsg consumerFallbehindThreshold enableBroadcastOffsetStore enableCreateSysGroup enableDetailStat
enableNetWorkFlowControl enableRegisterProducer enableScheduleMessageStats enableSingleTopicRegister
enableSplitMetadata enableSplitRegistration estimateAccumulation fetchNamesrvAddrInterval
flushConsumerOffsetHistoryInterval forwardTimeout highSpeedMode isolateLogEnable liteLagCountMetricsEnable
liteLagLatencyMetricsEnable liteLagLatencyTopK loadBalancePollNameServerInterval maxStatsIdleTimeInMinutes
printChannelGroups printChannelGroupsMinNum realTimeNotifyConsumerChange splitMetadataSize splitRegistrationSize
transactionMetricFlushInterval transactionOpBatchInterval transactionOpMsgMaxSize updateNameServerAddrPeriod
usePIDColdCtrStrategy
-- where the file itself is, and what a container has in it
brokerConfigPath configBlackList configStorePath inBrokerContainer isBrokerContainer isInBrokerContainer
"""

MEANINGLESS = frozenset(
    key for line in _MEANINGLESS.splitlines() if not line.startswith("--") for key in line.split()
)
"""Of what is not here: threads, pools, buffers."""

_UNREAD_PLACES = {
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}
"""Keys of files in the wild that the original does not read either: what they name is there, below storePathRootDir."""

PLACES = {
    **_UNREAD_PLACES,
    "storePathEpochFile": "epochFileCheckpoint",
    "storePathBrokerIdentity": "brokerIdentity",
}
"""Of files and folders whose usual places a file may name."""

_ELSEWHERE = tuple(
    Ignored(key, (), f"it is {name} below storePathRootDir, as in RocketMQ") for key, name in _UNREAD_PLACES.items()
)

FOREIGN = Foreign(
    refused=REFUSED,
    ignored=(*IGNORED, *_ELSEWHERE),
    meaningless=MEANINGLESS | AUTH_CACHES | METRICS | NETTY,
)
"""What is done with the original's other keys."""
