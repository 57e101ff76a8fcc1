/** Published when there is something new for the schedulers: a cronjob, a run, a change of either. */
export const CRONJOBS_TOPIC = 'cronjobs';
/** Published when runs were asked to end. */
export const CANCEL_TOPIC = 'cronjobs:cancel';
